// Each worker computes on its own to which trace a span belongs.
import { expect, test } from 'vitest';
import { attemptPlace, stepOfActivity, stepPlace } from '../../../src/workers/tracing/span-ids.js';

const tried = { workflowRunId: 'one', activityId: 'step-000120/collect', scheduledAt: 1, attempt: 1 };

test('an activity of a step is in the step’s trace, below its root span', () => {
  const step = stepOfActivity({ workflowId: 'train/crm', activityId: tried.activityId });
  expect(step).toBe(120);
  const root = stepPlace({ workflowRunId: 'one', step: 120 });
  expect(attemptPlace(tried, step)).toMatchObject({ traceId: root.traceId, parent: root.spanId });
});

test.each([
  ['train/crm', 'open'],
  ['eval/sales/nightly', 'step-000120/evaluate-sweep-3'],
])('the activity %s › %s belongs to no step and has its own trace', (workflowId, activityId) => {
  const step = stepOfActivity({ workflowId, activityId });
  expect(step).toBeNull();
  const place = attemptPlace({ ...tried, activityId }, step);
  expect(place.parent).toBeNull();
  expect(attemptPlace({ ...tried, activityId, attempt: 2 }, step).traceId).not.toBe(place.traceId);
});
