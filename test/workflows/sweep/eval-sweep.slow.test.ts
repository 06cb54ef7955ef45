// A sweep evaluates each state on each suite only once, and always gets the same results.
import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { evaluateState } from '../../../src/activities/evaluation/evaluate-state.js';
import { sweepStatusQuery } from '../../../src/workflows/sweep/sweep-messages.js';
import { readSweep } from '../../../src/store/evaluations/sweeps.js';
import { evaluationEpisodesFolder, tallyKey } from '../../../src/store/record-keys.js';
import { parseSweepSpec } from '../../../src/sweeps/sweep-input.js';
import { whyItEnded } from '../../../src/cli/train/start-training.js';
import { resultText, runNow } from '../../../src/cli/sweeps/sweeps-command.js';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import { counting, type Harness, run, tamper } from '../../activities/fixture.js';
import { until } from '../../support/until.js';
import { SweepStage, sweepSpec, tableOf, useSweeps } from './sweep-stage.js';

const last = 2;
const damaged = (bytes: Buffer): Buffer => {
  bytes[bytes.length - 1] = (bytes.at(-1) ?? 0) ^ 1;
  return bytes;
};
describe('a sweep', () => {
  let harness: Harness;
  let stage: SweepStage;
  useSweeps(last, (opened) => {
    stage = opened;
    ({ harness } = opened);
  });

  it('evaluates every state on every suite once, and adopts what a run has played; a second sweep plays nothing and needs no node', async () => {
    await harness.attempt('step-000002/evaluate-final', () =>
      evaluateState(harness.node, { run, owner: 1, step: 2, suite: 'final' }),
    );
    const { deps, calls } = counting(harness.node);
    const second = harness.secondNode();
    await stage.node(deps);
    const first = await (await stage.start('first', sweepSpec('first'))).result();
    // Two states; three tasks with one sample and three with two; minus the episodes that the run had played.
    expect(first).toMatchObject({ ended: 'completed', pairs: 4, episodes: 2 * (3 + 6) - 3, failed: [] });
    expect(calls.generate).toBeGreaterThan(0);
    await stage.leaves(deps);
    const again = await (await stage.start('again', sweepSpec('again'))).result();
    expect(again).toMatchObject({ ended: 'completed', pairs: 4, episodes: 0 });
    expect(await tableOf(harness, 'again')).toEqual(await tableOf(harness, 'first'));
    const page = await harness.store.get(first.report);
    expect(Buffer.from(page ?? []).toString()).toContain('twice');
    expect(second.node).not.toBe(deps.node);
    expect((await auditRun(harness.store, run)).violations).toEqual([]);
  });

  it('continues if every turn on a node ends when the window is empty', async () => {
    await stage.close();
    const hurried = await SweepStage.open(stage.temporal, harness, { isHurried: true });
    try {
      await hurried.node(harness.node);
      const handle = await hurried.start('hurried', sweepSpec('hurried', { parallel: 1 }));
      const result = await Promise.race([handle.result(), delay(90_000, null, { ref: false })]);
      expect(result).toMatchObject({ ended: 'completed', pairs: 4, failed: [] });
    } finally {
      await hurried.close();
    }
  });

  it('compares with the base model, of which no run has a checkpoint', async () => {
    await stage.node(harness.node);
    const baseline = { run, step: 0 };
    const suites = [{ name: 'final' }];
    const result = await (await stage.start('base', sweepSpec('base', { baseline, suites }))).result();
    expect(result).toMatchObject({ ended: 'completed', pairs: 3, episodes: 9, failed: [] });
    const { suites: compared } = await tableOf(harness, 'base');
    expect(compared[0]?.reference).toMatchObject({ run, step: 0, named: true });
  });

  it('ends incomplete, and says so, if a suite has no episode of the baseline', async () => {
    await stage.node(harness.node);
    const named = { suites: [{ name: 'final' }], baseline: { run, step: 2 } };
    await (await stage.start('whole', sweepSpec('whole', named))).result();
    const { checkpoints, suites, baseline } = await readSweep(harness.store, 'tests/whole');
    expect(checkpoints.map(({ step }) => step)).toEqual([1, 2]);
    const suite = suites[0]?.digest ?? '';
    await harness.store.delete(tallyKey(baseline ?? '', suite));
    for await (const { key } of harness.store.list(evaluationEpisodesFolder(baseline ?? '', suite)))
      await harness.store.delete(key);
    const result = await (await stage.start('lacking', sweepSpec('lacking', named))).result();
    expect(result).toMatchObject({ ended: 'incomplete', failed: [], alarms: [] });
    expect(result.gaps).toEqual([expect.stringMatching(/^final: the baseline was not played on this suite/)]);
    expect(resultText(result)).toContain('not compared: final: the baseline was not played');
  });

  it('computes a state with a damaged checkpoint from an older checkpoint and the logged updates', async () => {
    await stage.node(harness.secondNode());
    for await (const { key } of harness.store.list('checkpoints/'))
      if (key.includes('global_step_2/') && !key.endsWith('manifest.json'))
        await tamper(harness.store, key, damaged);
    const record = sweepSpec('damaged', { checkpoints: [{ run, steps: [2] }] });
    expect(await (await stage.start('damaged', record)).result()).toMatchObject({
      ...{ ended: 'completed', failed: [] },
    });
  });

  it('continues if a state cannot be evaluated, says which state and why, and evaluates it at its next start', async () => {
    await stage.node(harness.secondNode());
    const was = new Map<string, Uint8Array>();
    for (const root of ['checkpoints/', 'runs/']) {
      for await (const { key } of harness.store.list(root)) {
        if (!key.endsWith('.safetensors') || !/global_step_1\/|steps\/000001\//.test(key)) continue;
        was.set(key, (await harness.store.get(key)) ?? Buffer.of());
        await tamper(harness.store, key, damaged);
      }
    }
    expect(was.size).toBeGreaterThan(1);
    const suites = [
      { name: 'final' },
      { name: 'one', max_tasks: 1, samples: 2 },
      { name: 'two', max_tasks: 2 },
    ];
    const bad = sweepSpec('bad-state', { suites, parallel: 1 });
    const result = await (await stage.start('bad-state', bad)).result();
    expect(result).toMatchObject({ ended: 'incomplete', pairs: 6, episodes: 3 + 2 + 2 });
    expect(result.failed.map((failed) => [failed.step, failed.suite])).toEqual([
      [1, 'final'],
      [1, 'one'],
      [1, 'two'],
    ]);
    expect(result.failed[0]?.reason).toContain('000001/batch.safetensors');
    const { suites: compared } = await tableOf(harness, 'bad-state');
    expect(compared.map(({ states }) => states.map(({ step }) => step))).toEqual([[2], [2], [2]]);
    for (const [key, bytes] of was) await tamper(harness.store, key, () => bytes);
    expect(await (await stage.start('bad-state', bad)).result()).toMatchObject({
      ...{ ended: 'completed', pairs: 6, episodes: 3 + 2 + 2, failed: [] },
    });
  });

  it('waits for a node, says so, and releases everything when it is cancelled', async () => {
    const handle = await stage.start('waiting', sweepSpec('waiting'));
    const status = await until(async () => {
      const found = await handle.query(sweepStatusQuery).catch(() => null);
      return found?.waitsFor ? found : null;
    }, 'the sweep to wait for a node');
    expect(status).toMatchObject({ phase: 'evaluating', pairs: 4, done: 0 });
    const other = sweepSpec('waiting', { checkpoints: [{ run, steps: [2] }] });
    await expect(
      runNow(stage.temporal.client, parseSweepSpec(other), { id: 'waiting', detach: true }),
    ).rejects.toThrow(/tests\/waiting was started with another spec:\n +checkpoints\.0\.steps/);
    await handle.cancel();
    await expect(handle.result()).rejects.toThrow();
    const refused: unknown = await (
      await stage.start('waiting', other)
    )
      .result()
      .catch((error: unknown) => error);
    expect(whyItEnded(refused)).toContain('checkpoints.0.steps');
    await stage.node(harness.node);
    const result = await (await stage.start('waiting', sweepSpec('waiting', { parallel: 1 }))).result();
    expect(result).toMatchObject({ ended: 'completed', pairs: 4 });
  });

  it('fails at once for an empty suite or a deleted checkpoint, and names what exists', async () => {
    const bad = sweepSpec('bad', {
      checkpoints: [{ run, steps: [3] }],
      suites: [{ name: 'none', environments: ['crm'] }],
    });
    const failure: unknown = await (await stage.start('bad', bad)).result().catch((error: unknown) => error);
    const { cause } = failure as { cause?: { cause?: { message: string }; message: string } };
    const text = `${cause?.message} ${cause?.cause?.message}`;
    expect(text).toMatch(/tracker/);
  });
});
