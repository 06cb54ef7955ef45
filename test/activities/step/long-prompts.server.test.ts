// Tasks with too long prompts: one such task leaves its group without grades; if no prompt fits, the run ends and says why.
import { readFileSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createNodeActivities } from '../../../src/activities/node-activities.js';
import type { Task } from '../../../src/spec/records/task.js';
import { readUpdate } from '../../../src/store/runs/run-records.js';
import { type ForeignServer, startForeignServer } from '../../environments/foreign-server.js';
import { lastSftStep, run } from '../fixture.js';
import { harness, useHarness } from '../own-harness.js';

const step = lastSftStep + 1;
const tooLong = 'Read this first. '.repeat(200);

useHarness();
let foreign: ForeignServer;
beforeAll(async () => {
  // The first sample of each group passes, so that a played group has a signal.
  foreign = await startForeignServer((episodeId) => (episodeId.includes('.000.') ? '1' : '0'));
});
afterAll(() => foreign.close());

/** Opens the run with two training tasks and the held-out tasks, each changed by `change`. */
async function openWith(change: (task: Task, index: number) => Task): Promise<void> {
  const { tasks: file } = harness.spec['data'] as { tasks: string };
  const lines = readFileSync(file, 'utf8').trimEnd().split('\n');
  const tasks = lines.map((line) => JSON.parse(line) as Task);
  // Both tasks have the same template, so that each step draws both.
  const train = tasks.slice(0, 2).map((task) => ({ ...task, template: 'tracker' }));
  const kept = [...train, ...tasks.filter(({ split }) => split === 'held_out')];
  writeFileSync(file, kept.map((task, index) => `${JSON.stringify(change(task, index))}\n`).join(''));
  await harness.open({ ...harness.spec, environments: [{ env_key: 'tracker', url: foreign.url }] });
}
const evaluate = () =>
  harness.attempt('evaluate', () =>
    createNodeActivities(harness.node).evaluateState({ run, owner: 1, step: lastSftStep, suite: 'interval' }),
  );

describe('a task whose prompt is too long', () => {
  it('gives its group no grades if other tasks fit; the step learns from the other tasks', async () => {
    await openWith((task, index) => (index === 0 ? { ...task, prompt: tooLong } : task));
    expect(await harness.advance(step)).toMatchObject({ applied: true });
    const { identity } = await readUpdate(harness.store, run, step);
    expect([...identity.outcomes].sort()).toEqual(
      [
        [null, null],
        [1, 0],
      ].sort(),
    );
    expect(await evaluate()).toMatchObject({ graded: 2, unknown: 0 });
  });

  it('ends the run at its first evaluation if the prompts of all tasks are too long; the message names the limits', async () => {
    await openWith((task) => ({ ...task, prompt: tooLong }));
    await harness.advance(lastSftStep);
    await expect(evaluate()).rejects.toMatchObject({
      type: 'InvalidSpec',
      nonRetryable: true,
      message: expect.stringMatching(
        /generator\.max_input_length: no prompt fits into max_input_length \(448 tokens\) .* 480; raise both/,
      ) as string,
    });
  });
});
