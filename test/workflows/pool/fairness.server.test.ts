// In a node's queue, projects take turns: every activity has its run's project as the fairness key.
import { describe, expect, it } from 'vitest';
import { startTemporal } from '../../support/servers/temporal-server.js';
import { goldenLives, goldenServer } from '../golden-lives.js';
import { useTemporal } from '../scripted-run.js';

describe('an activity on a node’s queue', () => {
  const temporal = useTemporal(() => startTemporal(goldenServer));

  it.each([
    ['a run', 'training-run', ['.gpu', '.io']],
    ['a sweep', 'sweep', ['.gpu']],
  ] as const)('of %s has its project as the fairness key', async (_, life, queues) => {
    const { events } = (await goldenLives[life]?.(temporal)) ?? {};
    const scheduled = (events ?? []).flatMap((event) => event.activityTaskScheduledEventAttributes ?? []);
    const onNodes = scheduled.filter(({ taskQueue }) => taskQueue?.name?.startsWith('longhaul-node.'));
    for (const queue of queues)
      expect(onNodes.some(({ taskQueue }) => taskQueue?.name?.endsWith(queue))).toBe(true);
    for (const { activityId, priority } of onNodes)
      expect({ activityId, key: priority?.fairnessKey }).toEqual({ activityId, key: 'tests' });
    for (const one of scheduled) if (!onNodes.includes(one)) expect(one.priority?.fairnessKey ?? '').toBe('');
  });
});
