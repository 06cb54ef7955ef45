// A step with dynamic sampling: its waves are records that anybody can make again, and a kill between or during waves changes no bit.
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { auditRun } from '../../../../src/activities/reports/audit-run.js';
import type { PlannedStep } from '../../../../src/activities/contracts.js';
import { planWave } from '../../../../src/activities/step/plan-wave.js';
import { sha256Hex } from '../../../../src/base/sha256.js';
import { foldStep } from '../../../../src/store/collection/episode-folding.js';
import {
  batchKey,
  episodeKey,
  episodesFolder,
  stepFolder,
  updateKey,
  waveKey,
} from '../../../../src/store/record-keys.js';
import { checkQuarantinable, keysMadeFrom } from '../../../../src/store/runs/quarantine.js';
import { readUpdate } from '../../../../src/store/runs/run-records.js';
import { readBatch } from '../../../../src/store/runs/stored-batch.js';
import { decodeBatchFile } from '../../../../src/store/files/batch-file.js';
import { requireRecord } from '../../../../src/store/records/records.js';
import { keysOf } from '../../../store/overlaid-store.js';
import { activityId, lastSftStep, reviseRecord, run, tamper } from '../../fixture.js';
import { harness, useHarness } from '../../own-harness.js';
import { collect, passed, planned, setOutcome, step, update } from '../grpo-step.js';

useHarness();

const checker = new URL('../../../store/audit/outside-checker.py', import.meta.url).pathname;
let dynamic_sampling: object;

beforeEach(() => {
  dynamic_sampling = { type: 'filter', max_sample_batches: 3 };
});

async function begin(): Promise<PlannedStep> {
  const trainer = { ...(harness.spec['trainer'] as object), dynamic_sampling };
  await harness.open({ ...harness.spec, trainer });
  await harness.advance(lastSftStep);
  return (await planned()).answer;
}

const waveOf = (answer: PlannedStep, wave: number, attempt = 1) =>
  harness.attempt(
    activityId(answer.step, `wave-${wave}`),
    () => planWave(harness.orchestrator, { ...harness.reference(answer), wave }),
    attempt,
  );

/** Plays the plan's two groups, of which the first gets a signal, and the wave that follows. */
async function firstWave(answer: PlannedStep): Promise<void> {
  await collect(answer);
  await setOutcome(0, 0, passed);
  expect(await waveOf(answer, 1)).toEqual({ from: 2, to: 4 });
}

const bytesOf = async (key: string) => sha256Hex((await harness.store.get(key)) ?? new Uint8Array());

async function expectChecked(): Promise<void> {
  expect((await auditRun(harness.store, run)).violations).toEqual([]);
  const { stdout, stderr } = spawnSync('python3', [checker, join(harness.folder, 'store'), run], {
    encoding: 'utf8',
  });
  expect(`${stderr}${stdout}`).toMatch(/^nothing disagrees: [0-9]+ checks/);
}

describe('dynamic sampling', () => {
  it('plays waves until enough groups have a signal, and trains on those alone', async () => {
    const answer = await begin();
    expect(answer).toMatchObject({ slots: 2, waves: true });
    await firstWave(answer);
    await expect(update(answer)).rejects.toMatchObject({ name: 'UnreadableRecord' });
    await collect(answer, [2, 4]);
    await setOutcome(3, 1, passed);
    expect(await waveOf(answer, 2)).toEqual({ from: 4, to: 4 });
    expect(await update(answer)).toMatchObject({ applied: true });
    // Calls that come late still answer.
    expect(await waveOf(answer, 1)).toEqual({ from: 2, to: 4 });
    expect(await waveOf(answer, 2)).toEqual({ from: 4, to: 4 });
    const { identity, observed } = await readUpdate(harness.store, run, step);
    expect(identity.outcomes.map(([first, second]) => [first, second])).toEqual([
      [1, 0],
      [0, 0],
      [0, 0],
      [0, 1],
    ]);
    expect(observed.metrics).toMatchObject({ 'reward/signal_ratio': 0.5, 'reward/tracker/pass_at_1': 0.25 });
    expect(observed.metrics['environment/total_episodes']).toBe(8);
    const { plan: next } = await planned(step + 1);
    const wave = await requireRecord(harness.store, waveKey(run, step, 1), 'wave');
    const sum = (cursors: Record<string, number>) => Object.values(cursors).reduce((a, b) => a + b, 0);
    expect(sum(next.curriculum.cursors)).toBe(sum(wave.cursors) + 2);
    expect(sum(wave.cursors)).toBe(4);
    await harness.advance(step);
    await expectChecked();
    const { problem } = await foldStep(harness.store, run, step);
    expect(problem).toBeNull();
    expect(await keysOf(harness.store, episodesFolder(run, step))).toEqual([]);
  });

  it('goes on with what it has after its last wave', async () => {
    const answer = await begin();
    await collect(answer);
    expect(await waveOf(answer, 1)).toEqual({ from: 2, to: 4 });
    await collect(answer, [2, 4]);
    expect(await waveOf(answer, 2)).toEqual({ from: 4, to: 6 });
    await collect(answer, [4, 6]);
    expect(await waveOf(answer, 3)).toEqual({ from: 6, to: 6 });
    expect(await update(answer)).toMatchObject({ applied: false, reason: 'no_signal' });
    await expectChecked();
  });

  it('of type replace trains twice on a good group in place of a bad one', async () => {
    dynamic_sampling = { type: 'replace', max_sample_batches: 2 };
    const answer = await begin();
    await collect(answer);
    await setOutcome(1, 0, passed);
    expect(await waveOf(answer, 1)).toEqual({ from: 2, to: 2 });
    expect(await update(answer)).toMatchObject({ applied: true });
    const bytes = (await readBatch(harness.store, run, step))!;
    const { arrays, identity } = decodeBatchFile(bytes, batchKey(run, step));
    const half = arrays.target_advantages.length / 2;
    expect(identity.loss_tokens).toEqual([2 * half]);
    expect([...arrays.target_advantages.slice(half)]).toEqual([...arrays.target_advantages.slice(0, half)]);
    expect([...arrays.target_tokens.slice(half)]).toEqual([...arrays.target_tokens.slice(0, half)]);
    await expectChecked();
  });
});

describe('a kill', () => {
  it('between waves or during one changes no bit', async () => {
    const answer = await begin();
    await firstWave(answer);
    await collect(answer, [2, 4]);
    await setOutcome(2, 0, passed);
    expect(await waveOf(answer, 2)).toEqual({ from: 4, to: 4 });
    await update(answer);
    const undisturbed = await readUpdate(harness.store, run, step);
    const batch = await bytesOf(batchKey(run, step));
    const wave = await bytesOf(waveKey(run, step, 1));

    for (const key of await keysOf(harness.store, stepFolder(run, step)))
      if (/(waves|episodes|attempts)\/|batch|update/.test(key)) await harness.store.delete(key);
    const other = harness.secondNode();
    await collect(answer, [0, 2], other);
    await setOutcome(0, 0, passed);
    await waveOf(answer, 1);
    // The orchestrator dies before it learns that its wave was stored; the node dies after the first of the wave's slots.
    await waveOf(answer, 1, 2);
    await collect(answer, [2, 3], other);
    await setOutcome(2, 0, passed);
    await collect(answer, [2, 4], harness.secondNode(), 2);
    await waveOf(answer, 2);
    await update(answer, other);
    expect(await bytesOf(waveKey(run, step, 1))).toBe(wave);
    expect(await bytesOf(batchKey(run, step))).toBe(batch);
    expect((await readUpdate(harness.store, run, step)).identity).toEqual(undisturbed.identity);
    await expectChecked();
  });
});

describe('a wave that was changed', () => {
  it('is refused by the update, and can be set aside and planned again', async () => {
    const answer = await begin();
    await firstWave(answer);
    await collect(answer, [2, 4]);
    await setOutcome(2, 0, passed);
    const key = waveKey(run, step, 1);
    await reviseRecord(harness.store, key, 'wave', (wave) => ({ ...wave, cursors: { changed: 1 } }));
    await expect(update(answer)).rejects.toMatchObject({ name: 'UnreadableRecord', key });
    expect(checkQuarantinable(key).name).toBe('waves/1.json');
    expect(await keysMadeFrom(harness.store, key, new Set())).toEqual([batchKey(run, step)]);
    await tamper(harness.store, key, () => null);
    expect(await waveOf(answer, 1)).toEqual({ from: 2, to: 4 });
    expect(await update(answer)).toMatchObject({ applied: true });
  });

  it('is set aside, with its episodes, together with an earlier episode', async () => {
    const answer = await begin();
    await firstWave(answer);
    await collect(answer, [2, 4]);
    const made = [
      batchKey(run, step),
      ...[2, 3].flatMap((slot) => [0, 1].map((sample) => episodeKey(run, step, slot, sample))),
      waveKey(run, step, 1),
    ];
    const first = episodeKey(run, step, 0, 0);
    expect(await keysMadeFrom(harness.store, first, new Set())).toEqual(made);
    const last = made[4]!;
    expect(await keysMadeFrom(harness.store, first, new Set([last]))).toEqual(
      made.filter((key) => key !== last),
    );
    expect(await keysMadeFrom(harness.store, last, new Set())).toEqual(made.filter((key) => key !== last));
  });

  it('is found by the audit, as is one that is missing or too many', async () => {
    const answer = await begin();
    await firstWave(answer);
    await collect(answer, [2, 4]);
    await setOutcome(2, 0, passed);
    await update(answer);
    const key = waveKey(run, step, 1);
    const found = async () =>
      (await auditRun(harness.store, run)).violations.map((one) => [one.rule, one.key, one.problem]);
    const stored = (await harness.store.get(key))!;
    await harness.store.create(waveKey(run, step, 2), stored);
    expect(await found()).toEqual([
      ['R7', waveKey(run, step, 2), 'the step’s outcomes ask for no such wave'],
    ]);
    await tamper(harness.store, waveKey(run, step, 2), () => null);
    await reviseRecord(harness.store, key, 'wave', (wave) => ({ ...wave, cursors: { changed: 1 } }));
    expect(await found()).toEqual([
      ['R7', key, 'planning wave 1 again from the outcomes before it gives another wave'],
    ]);
    await tamper(harness.store, key, () => null);
    expect(await found()).toEqual([['R7', key, 'the wave is missing']]);
    expect(await harness.store.head(updateKey(run, step))).not.toBeNull();
  });
});
