// A comparison reads evaluations through the views of the states' runs, and says what it could not compare.
import { beforeEach, describe, expect, it } from 'vitest';
import { comparisonOf } from '../../../src/activities/evaluation/compare-sweep.js';
import { pairsToDo } from '../../../src/activities/evaluation/plan-sweep.js';
import type { SweepRecord, TalliedSample } from '../../../src/spec/records/sweep-record.js';
import { openDirectoryStore } from '../../../src/store/objects/directory-store.js';
import {
  controlFolder,
  evaluationEpisodeKey,
  evaluationResultKey,
  sweepKey,
  tallyKey,
} from '../../../src/store/record-keys.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { openSweepNeeds } from '../../../src/store/collection/open-sweeps.js';
import { openRunView } from '../../../src/store/runs/quarantine.js';
import { adoptOrCreate, appendSequence } from '../../../src/store/records/records.js';
import { recordsOfAllKinds } from '../../store/fixtures.js';
import { makeRunIn, stateOf } from '../../store/made-runs.js';
import { compareStates, madeUpState, madeUpSuite } from '../../sweeps/made-up.js';
import { ownFolder } from '../../support/scratch-folder.js';

const sweep = 'longhaul/nightly';
const suite = madeUpSuite('final', ['tracker'], 3, 2);

let folder: string;
let store: ObjectStore;
let record: SweepRecord;
beforeEach(async () => {
  folder = ownFolder();
  store = await openDirectoryStore(folder);
  await makeRunIn(store, 'tiny', { steps: 3, checkpoints: [1, 2, 3] });
  record = {
    ...recordsOfAllKinds().sweep,
    sweep,
    suites: [suite],
    baseline: null,
    observed: { at: new Date().toISOString() },
    checkpoints: [1, 2].map((step) => ({
      ...{ run: 'tiny', step, state: stateOf('tiny', step), also: [], needed: true },
    })),
  };
  await adoptOrCreate(store, sweepKey(sweep), 'sweep', record);
  for (const { state } of record.checkpoints) await evaluated(state);
});

async function played(to: ObjectStore, state: string, slot: number, sample: number): Promise<void> {
  const { episode } = recordsOfAllKinds();
  const task_key = suite.record.tasks[slot]?.task_key ?? '';
  await adoptOrCreate(to, evaluationEpisodeKey(state, suite.digest, slot, sample), 'episode', {
    ...episode,
    ...{ slot, sample, task_key, plan: suite.digest, state, outcome: { status: 'graded', value: 1 } },
  });
}

async function evaluated(state: string): Promise<void> {
  for (let slot = 0; slot < 3; slot++)
    for (let sample = 0; sample < 2; sample++) await played(store, state, slot, sample);
  await finished(store, state);
}

async function finished(to: ObjectStore, state: string): Promise<void> {
  const { evaluation } = recordsOfAllKinds();
  const step = state === first ? 1 : 2;
  const observed = { ...evaluation.observed, run: 'tiny', step };
  const result = { ...evaluation, state, suite: suite.digest, observed };
  await adoptOrCreate(to, evaluationResultKey(state, suite.digest), 'evaluation', result);
}

async function setAside(key: string, also: string[]): Promise<void> {
  await appendSequence(store, controlFolder('tiny'), 'control', (n) => ({
    ...recordsOfAllKinds().control,
    n,
    change: { kind: 'quarantine', key, also },
  }));
}

const [first, second] = [stateOf('tiny', 1), stateOf('tiny', 2)];
const broken = evaluationEpisodeKey(second, suite.digest, 1, 0);
const episodesOf = async () =>
  (await comparisonOf(store, record)).suites[0]?.states.map(({ all }) => [all.episodes, all.missing]);

describe('an evaluation with a broken episode', () => {
  beforeEach(async () => {
    await store.delete(broken);
    await store.create(broken, Buffer.from('broken'));
  });

  it('before the episode is quarantined, fails the comparison, which names the episode', async () => {
    await expect(comparisonOf(store, record)).rejects.toThrow(broken);
  });

  it('after the quarantine, is played again; until then it keeps its checkpoint and is compared without the episode', async () => {
    await setAside(broken, [evaluationResultKey(second, suite.digest)]);
    const { pairs } = await pairsToDo({ store }, { sweep, after: -1, limit: 10 });
    expect(pairs).toEqual([{ n: 1, run: 'tiny', step: 2, suite: 'final', missing: 1 }]);
    expect(await openSweepNeeds(store, 'tiny')).toEqual([{ step: 2, by: `sweep ${sweep}` }]);
    expect(await episodesOf()).toEqual([
      [6, 0],
      [5, 1],
    ]);
    const view = await openRunView(store, 'tiny');
    await played(view, second, 1, 0);
    await finished(view, second);
    expect((await pairsToDo({ store }, { sweep, after: -1, limit: 10 })).pairs).toEqual([]);
    expect(await episodesOf()).toEqual([
      [6, 0],
      [6, 0],
    ]);
  });
});

it('stored figures of an evaluation are not used after a run has quarantined one of its records', async () => {
  await comparisonOf(store, record);
  expect(await store.head(tallyKey(second, suite.digest))).not.toBeNull();
  await setAside(broken, [evaluationResultKey(second, suite.digest)]);
  expect((await episodesOf())?.[1]).toEqual([5, 1]);
});

it('an episode of another state under this evaluation’s key is refused (R8)', async () => {
  const key = evaluationEpisodeKey(first, suite.digest, 0, 0);
  await store.delete(key);
  const { episode } = recordsOfAllKinds();
  const task_key = suite.record.tasks[0]?.task_key ?? '';
  const other = { ...episode, slot: 0, sample: 0, task_key, plan: suite.digest, state: second };
  await adoptOrCreate(store, key, 'episode', other);
  await expect(comparisonOf(store, record)).rejects.toThrow(/was played for state/);
});

it('a comparison of thousands of tasks does not block the event loop, stops when it is cancelled, and gives the same result', async () => {
  const large = madeUpSuite('large', ['tracker', 'booking'], 5_000, 4);
  const states = record.checkpoints.map(({ run, step, state }, index) => ({
    ...madeUpState(large, { run, step, shift: { tracker: index * 0.2, booking: 0 } }),
    state,
  }));
  for (const { state, tasks } of states) {
    const samples = tasks.map((task) =>
      task.samples.map((sample): TalliedSample => {
        if (sample === null) throw new Error('all are played');
        return [sample.reward, sample.turns, sample.tool_calls, sample.tool_errors];
      }),
    );
    const kept = { schema: 'longhaul.tally/1', state, suite: large.digest, samples } as const;
    await adoptOrCreate(store, tallyKey(state, large.digest), 'tally', kept);
    const result = { ...recordsOfAllKinds().evaluation, state, suite: large.digest };
    await adoptOrCreate(store, evaluationResultKey(state, large.digest), 'evaluation', result);
  }
  const stop = new AbortController();
  const reported: unknown[] = [];
  const attempt = { signal: stop.signal, progress: (details: unknown) => void reported.push(details) };
  const compared = comparisonOf(store, { ...record, suites: [large] }, [], attempt);
  let turns = 0;
  const timer = setInterval(() => (turns += 1), 5);
  const { suites, rows } = await compared;
  clearInterval(timer);
  // The draws take hundreds of milliseconds.
  expect(turns).toBeGreaterThan(8);
  expect(suites).toEqual([compareStates(large, states, null)]);
  expect(rows).toHaveLength(2);
  expect(reported).toEqual([1, 2].map((read) => ({ suite: 'large', read, of: 2 })));
  stop.abort(new Error('called off'));
  await expect(comparisonOf(store, { ...record, suites: [large] }, [], attempt)).rejects.toThrow(
    'called off',
  );
});
