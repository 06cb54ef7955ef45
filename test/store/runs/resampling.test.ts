// What `longhaul resume --resample` writes (R24): one control record, which sets aside what the unfinished step has sampled.
import { setTimeout as delay } from 'node:timers/promises';
import { beforeEach, describe, expect, it } from 'vitest';
import { keysSetAsideBy, foldedControl, readControl } from '../../../src/store/runs/control-records.js';
import { discardSamples, timesResampled } from '../../../src/store/runs/resampling.js';
import { isSetAsideSince, openRunView } from '../../../src/store/runs/quarantine.js';
import { samplingSeed } from '../../../src/rl/random.js';
import { quarantine } from '../../../src/cli/store/quarantine-command.js';
import type { RecordTypes } from '../../../src/spec/records/record-kinds.js';
import {
  attemptsFolder,
  batchKey,
  episodeKey,
  planKey,
  runKey,
  updateKey,
  waveKey,
} from '../../../src/store/record-keys.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { openStore } from '../../../src/store/open-store.js';
import { recordDigest } from '../../../src/store/records/canonical.js';
import { encodeRecord } from '../../../src/store/records/record-codec.js';
import { digestOf, recordsOfAllKinds } from '../fixtures.js';
import { ownFolder } from '../../support/scratch-folder.js';

const run = 'tiny';
const kinds = recordsOfAllKinds();
const plan = kinds.plan as Extract<RecordTypes['plan'], { kind: 'grpo' }>;
/** The plan's rollouts: one slot of two samples. */
const rollouts = [0, 1].map((sample) => episodeKey(run, 1, 0, sample));
const batch = batchKey(run, 1);

describe('discarding what a step has sampled', () => {
  let store: ObjectStore;
  beforeEach(async () => {
    store = await openStore(`dir:${ownFolder()}`);
    await store.create(runKey(run), await encodeRecord('run', kinds.run));
    await store.create(updateKey(run, 0), await encodeRecord('base', kinds.base));
  });

  const write = (key: string, text = 'bytes') => store.create(key, Buffer.from(text));
  const planned = async (changes: object = {}) =>
    store.create(planKey(run, 1), await encodeRecord('plan', { ...plan, ...changes }));
  const wave = async (changes: object = {}) =>
    store.create(
      waveKey(run, 1, 1),
      await encodeRecord('wave', { ...kinds.wave, plan: recordDigest({ ...plan, ...changes }) }),
    );
  /** An attempt announces an episode of the step. */
  const announce = async (n: number, starts = rollouts) =>
    store.create(
      `${attemptsFolder(run, 1)}collect/x/${n}.json`,
      await encodeRecord('attempt', { ...kinds.attempt, n, starts }),
    );
  const changes = async () => (await readControl(store, run)).map(({ change }) => change);

  it('sets aside every rollout, the batch and nothing else, in one record', async () => {
    await planned();
    await announce(1);
    const [first, second] = rollouts as [string, string];
    await write(first);
    expect(await discardSamples(store, run)).toEqual({ kind: 'discarded', step: 1, control: 1, episodes: 1 });
    const [record] = await readControl(store, run);
    expect(record).toMatchObject({
      schema: 'longhaul.control/3',
      change: { kind: 'resample', step: 1, keys: [batch, first, second] },
    });
    const view = await openRunView(store, run);
    // A delayed attempt writes what it has played.
    await write(second, 'delayed');
    for (const key of [...rollouts, batch]) expect(await view.get(key)).toBeNull();
    expect(await view.get(planKey(run, 1))).not.toBeNull();
    await view.create(first, Buffer.from('again'));
    expect(Buffer.from((await store.get(`${first}.r1`))!).toString()).toBe('again');
    expect(Buffer.from((await store.get(first))!).toString()).toBe('bytes');
    expect((await view.listFolder(`runs/${run}/steps/000001/episodes/`)).length).toBe(1);
  });

  it('is recorded only once until something is sampled again, even if it is repeated', async () => {
    await planned();
    await write(rollouts[0]!);
    await discardSamples(store, run);
    for (let times = 0; times < 2; times += 1)
      expect(await discardSamples(store, run)).toEqual({
        kind: 'nothing',
        why: 'step 1 of tiny has sampled nothing: control record 1 has set aside what it had',
      });
    await (await openRunView(store, run)).create(rollouts[0]!, Buffer.from('again'));
    expect(await discardSamples(store, run)).toMatchObject({ kind: 'discarded', control: 2, episodes: 1 });
    expect((await changes()).map(keysSetAsideBy)).toEqual([
      [batch, ...rollouts],
      [batch, ...rollouts].map((key) => `${key}.r1`),
    ]);
    expect(timesResampled(await readControl(store, run), 1)).toBe(2);
    expect(timesResampled(await readControl(store, run), 2)).toBe(0);
  });

  it('is recorded once if two people ask at the same time', async () => {
    await planned();
    await write(rollouts[0]!);
    const [one, other] = await Promise.all([discardSamples(store, run), discardSamples(store, run)]);
    expect(one).toEqual(other);
    expect(await changes()).toHaveLength(1);
  });

  it('also discards turns of episodes that no attempt has finished', async () => {
    await planned();
    expect(await discardSamples(store, run)).toMatchObject({
      why: expect.stringContaining('no attempt') as string,
    });
    await announce(1);
    expect(await discardSamples(store, run)).toMatchObject({ kind: 'discarded', episodes: 0 });
    expect(await discardSamples(store, run)).toMatchObject({ kind: 'nothing' });
    await delay(20);
    // An attempt of an evaluation has nothing to do with the step.
    await announce(2, [`evals/${digestOf('a')}/${digestOf('b')}/episodes/00000.000.json.gz`]);
    expect(await discardSamples(store, run)).toMatchObject({ kind: 'nothing' });
    await announce(3);
    expect(await discardSamples(store, run)).toMatchObject({ kind: 'discarded', control: 2 });
  });

  it('includes waves, their episodes, and the wave that a delayed attempt may still plan', async () => {
    const full = {
      schema: 'longhaul.plan/4',
      dynamic_sampling: { type: 'filter', max_sample_batches: 4, wanted: 1, floor: 0.1, max_share: 1 },
      ...{ run_digest: digestOf('1'), control_digest: digestOf('2'), owner_digest: digestOf('3') },
    };
    await planned(full);
    await wave(full);
    await write(rollouts[0]!);
    const waveRollouts = [0, 1].map((sample) => episodeKey(run, 1, 1, sample));
    await write(waveRollouts[1]!);
    expect(await discardSamples(store, run)).toMatchObject({ episodes: 2 });
    expect((await changes()).flatMap(keysSetAsideBy)).toEqual(
      [batch, ...rollouts, ...waveRollouts, waveKey(run, 1, 1), waveKey(run, 1, 2)].sort(),
    );
    expect(await (await openRunView(store, run)).get(waveKey(run, 1, 1))).toBeNull();
  });

  it('leaves out records that no run makes, and those that were already quarantined', async () => {
    await planned();
    await write(rollouts[0]!);
    await write(`runs/${run}/steps/000001/episodes/left-by-hand.txt`);
    await quarantine(store, rollouts[0]!);
    await (await openRunView(store, run)).create(rollouts[0]!, Buffer.from('again'));
    expect(await discardSamples(store, run)).toMatchObject({ control: 2, episodes: 1 });
    expect(keysSetAsideBy((await changes())[1]!)).toEqual([`${batch}.r1`, `${rollouts[0]}.r1`, rollouts[1]]);
    expect(await (await openRunView(store, run)).get(rollouts[0]!)).toBeNull();
  });

  it('finds nothing to discard before a plan, in a supervised and in a rebased step, and never touches a committed one', async () => {
    const why = async () => (await discardSamples(store, run)) as { why: string };
    expect((await why()).why).toBe('step 1 of tiny is not planned yet, so nothing was sampled');
    const { slots: _slots, samples_per_slot: _samples, advantages: _advantages, ...rest } = plan;
    const supervised = { ...rest, kind: 'sft', phase: 'drill', mini_batches: [[0]] };
    for (const [changed, what] of [
      [supervised, 'supervised'],
      [{ ...plan, rebased: { run: 'parent', plan: digestOf('5') } }, 'rebased'],
    ] as const) {
      await store.delete(planKey(run, 1));
      await store.create(
        planKey(run, 1),
        await encodeRecord('plan', changed as unknown as RecordTypes['plan']),
      );
      expect((await why()).why).toBe(`step 1 of tiny is ${what}: there is nothing to sample again`);
    }
    await store.delete(planKey(run, 1));
    await planned();
    await write(rollouts[0]!);
    const identity = { ...kinds.update.identity, previous_state: digestOf('a'), plan: recordDigest(plan) };
    await store.create(updateKey(run, 1), await encodeRecord('update', { ...kinds.update, identity }));
    expect((await why()).why).toBe('step 2 of tiny is not planned yet, so nothing was sampled');
    expect(await changes()).toEqual([]);
  });

  it('is seen by an attempt that opened its view before, which must not commit', async () => {
    await planned();
    await write(rollouts[0]!);
    const before = await openRunView(store, run);
    expect(await isSetAsideSince(before, run, batch)).toBe(false);
    await discardSamples(store, run);
    expect(await isSetAsideSince(before, run, batch)).toBe(true);
    const after = await openRunView(store, run);
    expect(await isSetAsideSince(after, run, batch)).toBe(false);
    expect(await isSetAsideSince(after, run, planKey(run, 1))).toBe(false);
  });

  it('is folded into the control state, which changes no setting', async () => {
    await planned();
    await write(rollouts[0]!);
    const before = await foldedControl(store, run);
    expect(before).not.toHaveProperty('resampled');
    await discardSamples(store, run);
    expect(await foldedControl(store, run)).toEqual({ ...before, n: 1, resampled: 1 });
  });
});

describe('the seed of a step’s samples', () => {
  it('is the run’s own until the step is resampled, and another one after each time', () => {
    for (const seed of [0, 7, 2 ** 53 - 1]) {
      const seeds = [0, 1, 2, 3].map((times) => samplingSeed(seed, times));
      expect(seeds[0]).toBe(seed);
      expect(new Set(seeds).size).toBe(4);
      expect(seeds).toEqual([0, 1, 2, 3].map((times) => samplingSeed(seed, times)));
      for (const one of seeds) expect(Number.isSafeInteger(one)).toBe(true);
    }
  });
});
