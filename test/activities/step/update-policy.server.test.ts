// Sealing and updating look for the records first, and adopt what they find (R4, R10–R12).
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { PlannedStep } from '../../../src/activities/contracts.js';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import { updatePolicy } from '../../../src/activities/step/update-policy.js';
import type { Outcome } from '../../../src/spec/records/episode.js';
import { decodeBatchFile } from '../../../src/store/files/batch-file.js';
import { sha256Hex } from '../../../src/base/sha256.js';
import { batchKey, episodeKey, updateKey } from '../../../src/store/record-keys.js';
import { readState, readUpdate } from '../../../src/store/runs/run-records.js';
import { requireRecord } from '../../../src/store/records/records.js';
import { openRunView } from '../../../src/store/runs/quarantine.js';
import { discardSamples } from '../../../src/store/runs/resampling.js';
import { counting, reviseRecord, run, tamper } from '../fixture.js';
import {
  collect,
  episodeAt,
  harness,
  passed,
  planned,
  seal,
  setOutcome,
  step,
  unknown,
  update,
  useGrpoStep,
} from './grpo-step.js';
import { keptFailures } from '../own-harness.js';
import { overlaid } from '../../store/overlaid-store.js';

useGrpoStep();

describe('sealBatch', () => {
  it('gives the same bytes when it is repeated, on any node', async () => {
    const { answer } = await planned();
    await collect(answer);
    await setOutcome(0, 0, passed);
    const first = await seal(answer);
    const bytes = await harness.store.get(batchKey(run, step));
    expect(await seal(answer, harness.secondNode())).toEqual({ ...first, adopted: true });
    await tamper(harness.store, batchKey(run, step), () => null);
    expect(await seal(answer, harness.secondNode())).toEqual(first);
    expect(await harness.store.get(batchKey(run, step))).toEqual(bytes);
  });

  it('gives unknown outcomes no loss, and never counts them as 0', async () => {
    const { answer } = await planned();
    await collect(answer);
    await setOutcome(0, 0, passed);
    await setOutcome(1, 0, passed);
    await setOutcome(1, 1, unknown);
    const { batch } = await seal(answer);
    const bytes = (await harness.store.get(batchKey(run, step))) as Uint8Array;
    expect(sha256Hex(bytes)).toBe(batch);
    const { arrays, identity } = decodeBatchFile(bytes, batchKey(run, step));
    expect(identity.outcomes).toEqual([
      [1, 0],
      [1, null],
    ]);
    // The second group has only one graded member, so it has no signal. All targets belong to the two samples of the first group.
    const episodes = [await episodeAt(0, 0), await episodeAt(0, 1)];
    const sampled = episodes.map(({ logprobs }) => logprobs.length);
    expect(identity.loss_tokens[0]).toBe((sampled[0] ?? 0) + (sampled[1] ?? 0));
    const advantages = [...arrays.target_advantages];
    expect(advantages.filter((value) => value > 0)).toHaveLength(sampled[0] ?? -1);
    expect(advantages.filter((value) => value < 0)).toHaveLength(sampled[1] ?? -1);
    expect(identity.metrics['reward/avg_raw_reward']).toBeCloseTo(2 / 3, 12);
  });

  it('needs every record of the plan', async () => {
    const { answer } = await planned();
    await collect(answer, [0, 1]);
    await expect(seal(answer)).rejects.toMatchObject({
      name: 'UnreadableRecord',
      // The records are read in parallel, so the error may name either of the missing ones.
      key: expect.stringMatching(/\/episodes\/00001\.00[01]\.json\.gz$/) as string,
    });
    expect(await harness.store.get(batchKey(run, step))).toBeNull();
  });

  it('refuses a stored batch that differs from its episodes, and says where it differs and how to continue', async () => {
    const { answer } = await planned();
    await collect(answer);
    await seal(answer);
    await setOutcome(0, 0, passed);
    await expect(seal(answer)).rejects.toMatchObject({
      name: 'Diverged',
      message: expect.stringMatching(
        /outcomes\.0\.0 .*longhaul quarantine runs\/unit\/steps\/000003\/batch\.safetensors$/,
      ) as string,
    });
  });

  it('names a damaged batch', async () => {
    const { answer } = await planned();
    await collect(answer);
    await seal(answer);
    await tamper(harness.store, batchKey(run, step), (bytes) => bytes.subarray(0, 20));
    await expect(seal(answer)).rejects.toMatchObject({ name: 'UnreadableRecord', key: batchKey(run, step) });
  });
});

describe('updatePolicy', () => {
  async function played(outcomes: [number, number, Outcome][]): Promise<PlannedStep> {
    const { answer } = await planned();
    await collect(answer);
    for (const [slot, sample, outcome] of outcomes) await setOutcome(slot, sample, outcome);
    return answer;
  }

  it('commits the new state, with the digests of everything it was made from', async () => {
    const answer = await played([[0, 0, passed]]);
    const committed = await update(answer);
    const { identity } = await readUpdate(harness.store, run, step);
    const batch = sha256Hex((await harness.store.get(batchKey(run, step)))!);
    const previous_state = await readState(harness.store, run, step - 1);
    expect(identity).toMatchObject({ plan: answer.plan, batch, previous_state, applied: true });
    expect(identity.step_id).toBe(sha256Hex(`${previous_state}\n${batch}\n${answer.plan}\n`));
    expect(committed).toMatchObject({ step, applied: true, state: identity.state, reason: null });
    expect(identity.state).not.toBe(previous_state);
  });

  it('counts the time of other nodes that played its episodes, because a budget covers all nodes', async () => {
    const { answer } = await planned();
    await collect(answer);
    const input = { ...harness.reference(answer), elsewhere: 7200 };
    const { spent } = await harness.attempt('update', () => updatePolicy(harness.node, input));
    expect(spent?.gpu_seconds).toBeGreaterThan(7200);
    expect(spent?.gpu_seconds).toBeLessThan(7200 + 3600);
    expect((await readUpdate(harness.store, run, step)).observed.timings_ms['elsewhere']).toBe(7_200_000);
  });

  it('answers from its record if it exists, without the engine', async () => {
    const answer = await played([[0, 0, passed]]);
    const first = await update(answer);
    const { deps, calls } = counting(harness.secondNode());
    expect(await update(answer, deps, 2)).toEqual(first);
    expect(calls.update).toBe(0);
  });

  it('applies nothing if the attempt that sealed the batch commits it meanwhile', async () => {
    const answer = await played([[0, 0, passed]]);
    await seal(answer);
    const { deps, calls } = counting(harness.secondNode());
    const first: unknown[] = [];
    const store = overlaid(deps.store, {
      create: async (key, bytes) => {
        if (key === batchKey(run, step)) first.push(await update(answer));
        return deps.store.create(key, bytes);
      },
    });
    expect([await update(answer, { ...deps, store }, 2)]).toEqual(first);
    expect(calls.update).toBe(0);
  });

  it('applies nothing again if the engine’s reply was lost: the engine knows the step id', async () => {
    const answer = await played([[0, 0, passed]]);
    const first = await update(answer);
    await tamper(harness.store, updateKey(run, step), () => null);
    const incarnation = (await harness.engine.info()).incarnation;
    expect(await update(answer, harness.node, 2)).toMatchObject({ state: first.state, applied: true });
    expect((await harness.engine.info()).incarnation).toBe(incarnation);
    expect((await harness.engine.held())?.state).toBe(first.state);
    expect(harness.said.filter((line) => line.startsWith('restored'))).toEqual([]);
  });

  it('gives the same state on two nodes', async () => {
    const answer = await played([[0, 0, passed]]);
    const first = await update(answer);
    await tamper(harness.store, updateKey(run, step), () => null);
    expect((await update(answer, harness.secondNode(), 2)).state).toBe(first.state);
  });

  it('without a learning signal, commits the step with an unchanged state', async () => {
    const answer = await played([]);
    const { deps, calls } = counting(harness.node);
    const previous = await readState(harness.store, run, step - 1);
    expect(await update(answer, deps)).toMatchObject({
      applied: false,
      reason: 'no_signal',
      state: previous,
    });
    expect(calls.update).toBe(0);
    expect(await harness.plan(step + 1)).toMatchObject({ step: step + 1 });
  });

  it('refuses a changed batch and names it: both results are kept, and nothing is committed', async () => {
    const answer = await played([[0, 0, passed]]);
    const { batch } = await seal(answer);
    let tampered = '';
    await tamper(harness.store, batchKey(run, step), (bytes) => {
      bytes[bytes.length - 1] = (bytes[bytes.length - 1] ?? 0) ^ 1;
      tampered = sha256Hex(bytes);
      return bytes;
    });
    await expect(update(answer)).rejects.toMatchObject({
      name: 'Diverged',
      message: expect.stringContaining(`longhaul quarantine ${batchKey(run, step)}`) as string,
    });
    expect(await keptFailures(run, step)).toMatchObject([
      { verb: 'seal', stored: tampered, computed: batch },
    ]);
    expect(await harness.store.get(updateKey(run, step))).toBeNull();
    expect((await harness.engine.held())?.state).toBe(await readState(harness.store, run, step - 1));
  });

  it('does not commit a batch that was set aside while its update was computed; the step is then sampled and taken again', async () => {
    const answer = await played([[0, 0, passed]]);
    const { engine } = harness.node.holder;
    const { update: apply } = engine;
    engine.update = async (...args) => {
      const result = await apply(...args);
      await discardSamples(harness.store, run);
      engine.update = apply;
      return result;
    };
    await expect(update(answer)).rejects.toThrow('was set aside while its update was computed');
    expect(await harness.store.get(updateKey(run, step))).toBeNull();
    const [old, oldBatch] = [await episodeAt(0, 0), await harness.store.get(batchKey(run, step))];

    const view = await openRunView(harness.store, run);
    const deps = { ...harness.node, store: view };
    await collect(answer, undefined, deps);
    const key = episodeKey(run, step, 0, 0);
    expect((await requireRecord(view, key, 'episode')).tokens).not.toEqual(old.tokens);
    await reviseRecord(view, key, 'episode', (record) => ({ ...record, outcome: passed }));
    // The engine holds the state that the other batch led to, and goes back.
    const { state } = await update(answer, deps);
    const { identity } = await readUpdate(harness.store, run, step);
    expect(identity).toMatchObject({ applied: true, state });
    expect(identity.batch).toBe(sha256Hex((await harness.store.get(`${batchKey(run, step)}.r1`))!));
    expect(await harness.store.get(batchKey(run, step))).toEqual(oldBatch);
    expect(await auditRun(harness.store, run)).toMatchObject({
      violations: [],
      resampled: [{ step, control: 1, episodes: 4 }],
    });
  });
});

describe('the disk of a node after some steps', () => {
  it('contains no batch: each is fetched for one update only', async () => {
    expect(await readdir(join(harness.folder, 'node-a', 'batches'))).toEqual([]);
  });
});
