// The report of a run that was cancelled and then continued: the report at the cancellation must not block a newer report.
import { expect, test } from 'vitest';
import { evaluateState } from '../../../src/activities/evaluation/evaluate-state.js';
import { publishReport, renderRunReport } from '../../../src/activities/reports/publish-report.js';
import { lastSftStep, run } from '../fixture.js';
import { harness, useSharedHarness } from '../own-harness.js';

useSharedHarness();

const publish = () => publishReport(harness.orchestrator, { run });
const stored = async (key: string) => Buffer.from((await harness.store.get(key)) ?? []).toString();

test('a report that is written again at the same step contains the facts that were recorded since', async () => {
  await harness.advance(lastSftStep + 1);
  const cancelled = await publish();
  await harness.attempt('evaluate', () =>
    evaluateState(harness.node, { run, owner: 1, step: lastSftStep + 1, suite: 'final' }),
  );
  const final = await publish();
  const again = await renderRunReport(harness.orchestrator, run, {
    folder: 'transcripts',
    keep: () => Promise.reject(new Error('so few transcripts are in the page')),
  });
  expect(await stored(final.key)).toBe(again.html);
  expect(again.html).toContain('final evaluation after step 3');
  expect(await stored(cancelled.key)).not.toBe(await stored(final.key));
});

test('a report that is written again from the same records is the same report', async () => {
  await harness.advance(lastSftStep + 1);
  expect(await publish()).toEqual(await publish());
});
