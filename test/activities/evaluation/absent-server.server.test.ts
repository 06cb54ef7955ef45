// An evaluation asks its environments who they are before its first episode. People see what it waits for if one is away (R25).
import { expect, it, vi } from 'vitest';
import { commitBase } from '../../../src/activities/step/commit-base.js';
import { evaluateState } from '../../../src/activities/evaluation/evaluate-state.js';
import { startForeignServer } from '../../environments/foreign-server.js';
import { harness, useHarness } from '../own-harness.js';

useHarness();

it('reports which server is away, since when, and when the run will be blocked, until it answers', async () => {
  const away = await startForeignServer(() => '1');
  await away.close();
  const generator = { ...(harness.spec.generator as object), max_wait_s: 300 };
  const environments = [{ env_key: 'tracker', url: away.url }];
  await harness.open({ ...harness.spec, name: 'alone', environments, generator });
  await harness.attempt('base', () => commitBase(harness.node, { run: 'alone', owner: 1 }));
  const begun = Date.now();
  const progress: object[] = [];
  const evaluating = harness.attempt(
    'step-000000/evaluate-final',
    () => evaluateState(harness.node, { run: 'alone', owner: 1, step: 0, suite: 'final' }),
    1,
    progress,
  );
  const waits = (): { waiting_since: number; waiting_until: number }[] =>
    progress.flatMap((one) =>
      'waiting' in one ? [one as unknown as { waiting_since: number; waiting_until: number }] : [],
    );
  await vi.waitFor(() => expect(waits().length).toBeGreaterThan(2), { timeout: 60_000 });
  expect(waits()[0]).toMatchObject({
    ...{ waiting: 'tracker', waiting_episodes: 0 },
    waiting_reason: expect.stringContaining(away.url) as string,
  });
  // The wait has one begin and one end, however often it is reported.
  const [first, last] = [waits()[0]!, waits().at(-1)!];
  expect(last.waiting_since).toBe(first.waiting_since);
  expect(first.waiting_since).toBeGreaterThanOrEqual(begun);
  for (const { waiting_until } of [first, last])
    expect(Math.abs(waiting_until - first.waiting_since - 300_000)).toBeLessThan(10_000);
  const back = await startForeignServer(
    () => '1',
    () => true,
    { port: Number(new URL(away.url).port) },
  );
  try {
    expect(await evaluating).toMatchObject({ graded: 3, unknown: 0 });
    const reports = progress.map((one) => 'waiting' in one);
    expect(reports.slice(reports.lastIndexOf(true) + 1)).not.toEqual([]);
    expect(progress.at(-1)).not.toHaveProperty('waiting');
  } finally {
    await back.close();
  }
});
