// Forks and rewinds (R5, R22): another run goes on after a committed step of this one; nothing is copied, and nothing half made.
import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { auditRun } from '../../src/activities/audit-run.js';
import { collectRollouts } from '../../src/activities/collect-rollouts.js';
import type { OpenedRun } from '../../src/activities/contracts.js';
import { DatasetCache } from '../../src/activities/dataset-cache.js';
import { forkSpec } from '../../src/activities/fork-spec.js';
import { openRun } from '../../src/activities/open-run.js';
import type { OrchestratorDeps } from '../../src/activities/orchestrator-deps.js';
import { planStep } from '../../src/activities/plan-step.js';
import { recordControl } from '../../src/activities/record-control.js';
import { RunDataCache } from '../../src/activities/run-data.js';
import { saveState, uploadCheckpoint } from '../../src/activities/save-state.js';
import { updatePolicy } from '../../src/activities/update-policy.js';
import type { EnvironmentServer } from '../../src/environments/server/environment-server.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import { listCheckpoints } from '../../src/store/checkpoints.js';
import { planCollection } from '../../src/store/collection.js';
import {
  episodeKey,
  namesFolder,
  planKey,
  refKey,
  runKey,
  sequenceKey,
  stepsFolder,
} from '../../src/store/layout.js';
import type { ObjectStore } from '../../src/store/object-store.js';
import { openStore } from '../../src/store/open-store.js';
import { encodeRecord } from '../../src/store/record-codec.js';
import { checkOwner } from '../../src/store/owners.js';
import { openRunView } from '../../src/store/quarantine.js';
import { readRecord, requireRecord } from '../../src/store/records.js';
import { readReferences } from '../../src/store/references.js';
import { claimName, lastCommittedStep, readRun, readState, timelineOf } from '../../src/store/run-records.js';
import { type Harness, run, startEnvironments, startHarness, tamper, workflow } from './fixture.js';

const last = 5;
const lrFromStep4 = 3e-3;

let environments: EnvironmentServer;
let harness: Harness;
const scratch = mkdtempSync(join(tmpdir(), 'longhaul-forks-'));

/** A run of five steps, whose rate was changed before the fourth; the state after the second is in the store. */
beforeAll(async () => {
  environments = await startEnvironments();
  harness = await startHarness(environments);
  await harness.advance(2);
  await harness.attempt('save', () => saveState(harness.node, { run, step: 2, owner: 1 }));
  await harness.attempt('upload', () => uploadCheckpoint(harness.node, { run, step: 2, owner: 1 }));
  await advance(run, 1, 3);
  const change = { kind: 'setHyperparameters', lr: lrFromStep4 } as const;
  await recordControl(harness.orchestrator, { run, owner: 1, updateId: 'u1', change });
  await advance(run, 1, last, 1);
});
afterAll(async () => {
  await harness.close();
  await environments.close();
  rmSync(scratch, { recursive: true, force: true });
});

function step(number: number, part: string): string {
  return `step-${String(number).padStart(6, '0')}/${part}`;
}

async function advance(of: string, owner: number, to: number, control = 0): Promise<void> {
  const { node, orchestrator } = harness;
  for (let next = (await lastCommittedStep(harness.store, of)) + 1; next <= to; next++) {
    const reference = { run: of, step: next, owner };
    const planned = await planStep(orchestrator, { ...reference, control });
    const input = { ...reference, plan: planned.plan };
    if (planned.kind === 'grpo')
      await harness.attempt(step(next, 'collect'), () =>
        collectRollouts(node, { ...input, slots: [0, planned.slots] }),
      );
    if (planned.kind === 'grpo') await pass(of, next);
    await harness.attempt(step(next, 'update'), () => updatePolicy(node, input));
  }
}

/** The policy of a few steps never passes: one episode is graded as if it had, so that each step changes the state. */
async function pass(of: string, number: number): Promise<void> {
  const key = episodeKey(of, number, number % 2, 0);
  const episode = await requireRecord(harness.store, key, 'episode');
  const bytes = await encodeRecord('episode', { ...episode, outcome: { status: 'graded', value: 1 } });
  await tamper(harness.store, key, () => bytes);
}

/** As a worker over `store` opens it; each name has its own workflow. */
function open(
  spec: RunSpec,
  store: ObjectStore = harness.store,
  other: Partial<OrchestratorDeps> = {},
): Promise<OpenedRun> {
  const datasets = new DatasetCache(store);
  const deps = {
    ...harness.orchestrator,
    store,
    datasets,
    runs: new RunDataCache(store, datasets),
    ...other,
  };
  return openRun(deps, { spec, workflow: { ...workflow, workflowId: `train/${spec.name}` } });
}

async function fork(
  name: string,
  from: { run: string; step: number },
  change: (spec: RunSpec) => void = () => undefined,
) {
  const spec = await forkSpec(harness.store, name, from);
  change(spec);
  return { spec, opened: await open(spec) };
}

/** A copy of the store, in which nothing was forked yet. */
async function copy(): Promise<ObjectStore> {
  const folder = mkdtempSync(join(scratch, 'copy-'));
  cpSync(pristine, folder, { recursive: true, preserveTimestamps: true });
  return openStore(`dir:${folder}`);
}
const pristine = join(scratch, 'pristine');
beforeAll(() =>
  cpSync(join(harness.folder, 'store'), pristine, { recursive: true, preserveTimestamps: true }),
);

const statesOf = (of: string, steps: number[], store = harness.store) =>
  Promise.all(steps.map((number) => readState(store, of, number)));

async function messageOf(promise: Promise<unknown>): Promise<string> {
  const error = await promise.then(
    () => null,
    (thrown: unknown) => thrown,
  );
  expect(error).toMatchObject({ name: 'InvalidSpec' });
  return (error as Error).message;
}

describe('a fork', () => {
  test('that changes nothing takes its parent’s further steps, bit for bit, and copies none of its steps', async () => {
    const { opened } = await fork('same', { run, step: 3 });
    expect(opened).toMatchObject({
      outline: { run: 'same', lineage: { run, step: 3 } },
      position: { step: 3, state: await readState(harness.store, run, 3), lastCheckpoint: 2 },
      control: { n: 0, lr: null },
    });
    // What is set live holds from the next plan on: the parent's fourth was made with it, and so is the fork's.
    await recordControl(harness.orchestrator, {
      run: 'same',
      owner: opened.owner,
      updateId: 'u1',
      change: { kind: 'setHyperparameters', lr: lrFromStep4 },
    });
    await advance('same', opened.owner, last, 1);
    const states = await statesOf(run, [0, 1, 2, 3, 4, 5]);
    expect(new Set(states).size).toBe(6);
    expect(await statesOf('same', [0, 1, 2, 3, 4, 5])).toEqual(states);
    expect(await harness.store.listFolder(stepsFolder('same'))).toEqual(['000004/', '000005/']);
    expect(await harness.store.listFolder('checkpoints/tests/unit/')).toEqual([`${run}/`]);
    expect((await auditRun(harness.store, 'same')).violations).toEqual([]);
  });

  test('keeps what was set live by the step where it begins', async () => {
    const { spec, opened } = await fork('tuned', { run, step: 4 });
    expect(spec.trainer.lr).toBe(lrFromStep4);
    await advance('tuned', opened.owner, 5);
    expect(await statesOf('tuned', [5])).toEqual(await statesOf(run, [5]));
  });

  test('with another rate goes another way, from the same state', async () => {
    const { opened } = await fork('faster', { run, step: 4 }, ({ trainer }) => (trainer.lr = 9e-3));
    await advance('faster', opened.owner, 5);
    const [four, five] = await statesOf('faster', [4, 5]);
    expect(four).toBe(await readState(harness.store, run, 4));
    expect(five).not.toBe(await readState(harness.store, run, 5));
  });

  test('of a fork, begun while that one is still under way, goes on from what both share', async () => {
    const first = await fork('first', { run, step: 3 });
    await advance('first', first.opened.owner, 4);
    const own = await fork('of-its-own-step', { run: 'first', step: 4 });
    const early = await fork('of-a-shared-step', { run: 'first', step: 2 });
    await advance('first', first.opened.owner, 5);
    await advance('of-its-own-step', own.opened.owner, 5);
    await advance('of-a-shared-step', early.opened.owner, 5);
    const expected = await statesOf('first', [1, 2, 3, 4, 5]);
    expect(await statesOf('of-its-own-step', [1, 2, 3, 4, 5])).toEqual(expected);
    expect(await statesOf('of-a-shared-step', [1, 2, 3, 4, 5])).toEqual(expected);
    expect(await timelineOf(harness.store, 'of-a-shared-step', 2)).toBe(run);
    // The reference is where the step is.
    expect(await harness.store.head(refKey(run, 'of-a-shared-step'))).not.toBeNull();
    expect(await harness.store.head(refKey('first', 'of-its-own-step'))).not.toBeNull();
    expect((await auditRun(harness.store, 'of-its-own-step')).violations).toEqual([]);
  });

  test('goes on when its workflow starts again, with its spec or with the stored one', async () => {
    const { spec, opened } = await fork('again', { run, step: 3 });
    await advance('again', opened.owner, 4);
    const { fork: _, ...stored } = spec;
    expect((await readRun(harness.store, 'again')).spec).toEqual(stored);
    for (const one of [spec, stored])
      expect(await open(one)).toMatchObject({ outline: { run: 'again' }, position: { step: 4 } });
  });

  test('keeps its parent’s checkpoint from being collected from the moment it is referred to', async () => {
    const store = await copy();
    const only = { keep_last: 1, keep_every: 0, keep_best: 0 };
    await harness.attempt('save', () => saveState(harness.node, { run, step: 5, owner: 1 }));
    const at5 = { ...harness.node, store };
    await harness.attempt('upload', () => uploadCheckpoint(at5, { run, step: 5, owner: 1 }));
    const plan = () => planCollection(store, run, { retention: only, bestSteps: () => Promise.resolve([]) });
    expect((await plan()).checkpoints).toEqual([2]);
    const spec = await forkSpec(store, 'safe', { run, step: 3 });
    await expect(open(spec, dyingAfter(store, 1))).rejects.toThrow('killed');
    expect(await readReferences(store, run)).toMatchObject([{ user: 'safe', step: 3, kind: 'fork' }]);
    expect((await plan()).kept.get(2)).toEqual(['needed by safe']);
  });

  test('reads around what its parent had set aside', async () => {
    const store = await copy();
    const key = planKey(run, last + 1);
    await store.create(key, Buffer.from('{"cut of'));
    const change = { kind: 'quarantine', key } as const;
    await recordControl({ ...harness.orchestrator, store }, { run, owner: 1, updateId: 'q', change });
    expect(await readRecord(await openRunView(store, run), key, 'plan')).toBeNull();
    await open(await forkSpec(store, 'aside', { run, step: last }), store);
    expect(await readRecord(await openRunView(store, 'aside'), key, 'plan')).toBeNull();
  });
});

/** Dies before its (`writes` + 1)-th new object. */
function dyingAfter(store: ObjectStore, writes: number): ObjectStore {
  let left = writes;
  const create: ObjectStore['create'] = async (key, bytes) => {
    if (left === 0) throw new Error('killed');
    const answer = await store.create(key, bytes);
    if (answer === 'created') left -= 1;
    return answer;
  };
  return new Proxy(store, {
    get: (target, name) => {
      const value: unknown = name === 'create' ? create : Reflect.get(target, name);
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
}

describe.each([
  { what: 'fork', name: 'branch', as: 'branch', writes: 4 },
  { what: 'rewind', name: run, as: `${run}~2`, writes: 5 },
])('a $what that is killed', ({ name, as, writes }) => {
  test.each(Array.from({ length: writes }, (_, k) => k))(
    'after %i writes is finished by the same start',
    async (k) => {
      const store = await copy();
      const spec = await forkSpec(store, name, { run, step: 3 });
      await expect(open(spec, dyingAfter(store, k))).rejects.toThrow('killed');
      const opened = await open(spec, store);
      expect(opened).toMatchObject({ outline: { run: as }, position: { step: 3 } });
      expect(await claimName(store, name)).toBe(as);
      expect(await readReferences(store, run)).toMatchObject([{ user: as, step: 3 }]);
      expect((await store.listFolder('runs/')).sort()).toEqual([`${run}/`, `${as}/`].sort());
      expect((await auditRun(store, as)).violations).toEqual([]);
    },
  );

  test('is whole after so many writes', async () => {
    const store = await copy();
    const spec = await forkSpec(store, name, { run, step: 3 });
    await open(spec, dyingAfter(store, writes));
  });
});

describe('a rewind', () => {
  test('begins the next timeline of its name, and every later start of the name goes on with that', async () => {
    const store = await copy();
    const spec = await forkSpec(store, run, { run, step: 3 });
    expect(await open(spec, store)).toMatchObject({
      outline: { run: `${run}~2`, name: run },
      position: { step: 3 },
    });
    const { fork: _, ...plain } = spec;
    expect(await open(plain, store)).toMatchObject({ outline: { run: `${run}~2` }, owner: 2 });
    const again = await forkSpec(store, run, { run: `${run}~2`, step: 1 });
    expect(await open(again, store)).toMatchObject({ outline: { run: `${run}~3` }, position: { step: 1 } });
    // A start that was late is of a timeline that is there: it makes no other one.
    expect(await open(spec, store)).toMatchObject({ outline: { run: `${run}~3` } });
    expect(await readRecord(store, sequenceKey(namesFolder(run), 4), 'name')).toBeNull();
    expect((await auditRun(store, `${run}~3`)).violations).toEqual([]);
  });

  test('leaves nobody who could go on with the timeline before', async () => {
    const store = await copy();
    const other = { workflowId: 'train/by-hand', firstExecutionRunId: 'another' };
    const spec = await forkSpec(store, run, { run, step: 3 });
    const datasets = new DatasetCache(store);
    await openRun(
      { ...harness.orchestrator, store, datasets, runs: new RunDataCache(store, datasets) },
      { spec, workflow: { ...workflow, ...other } },
    );
    await expect(checkOwner(store, run, 1)).rejects.toThrow(/owner/);
  });

  test('is refused while a workflow on another server drives the timeline', async () => {
    const store = await copy();
    const spec = await forkSpec(store, run, { run, step: 3 });
    const elsewhere = {
      clusterId: () => Promise.resolve('another'),
      ownerState: () => Promise.resolve('open' as const),
    };
    await expect(open(spec, store, elsewhere)).rejects.toThrow(/is driven by workflow train\/unit/);
    expect(await store.head(runKey(`${run}~2`))).toBeNull();
  });

  test('of two at once to different steps is one, and the other is refused', async () => {
    const store = await copy();
    const specs = await Promise.all([2, 3].map((at) => forkSpec(store, run, { run, step: at })));
    const answers = await Promise.allSettled(specs.map((spec) => open(spec, store)));
    const refused = answers.filter(({ status }) => status === 'rejected');
    expect(refused).toHaveLength(1);
    expect(refused[0]).toMatchObject({ reason: { name: 'InvalidSpec' } });
    expect(await store.listFolder(namesFolder(run))).toEqual(['1.json', '2.json']);
    expect((await auditRun(store, `${run}~2`)).violations).toEqual([]);
  });
});

describe('is refused, and leaves nothing behind:', () => {
  type Part = Record<string, unknown>;
  const refusals: {
    what: string;
    name?: string;
    from?: { run: string; step: number };
    change?: (spec: Record<string, Part>) => void;
    says: RegExp;
  }[] = [
    {
      what: 'a run that is not there',
      from: { run: 'nobody', step: 1 },
      says: /fork\.run: there is no run "nobody"/,
    },
    {
      what: 'a step beyond the last',
      from: { run, step: 9 },
      says: /step 9 of unit is not committed; the nearest committed ones are 3, 4, 5/,
    },
    { what: 'a step before the first', from: { run, step: -1 }, says: /fork\.step: / },
    {
      what: 'a rewind to where it is',
      name: run,
      from: { run, step: last },
      says: /unit is at step 5: there is nothing to rewind/,
    },
    {
      what: 'the name of a run',
      name: 'settled',
      says: /name: run "settled" exists and is a fork of unit after step 1/,
    },
    {
      what: 'another model',
      change: ({ model }) => (model!.architecture = { ...(model!.architecture as Part), hidden_size: 64 }),
      says: /model\.architecture\.hidden_size: a fork of unit has its parent's \(stored 32, computed 64\)/,
    },
    {
      what: 'another seed',
      change: (spec) => ((spec as Part).seed = 6),
      says: /seed: a fork of unit has its parent's/,
    },
    {
      what: 'another tokenizer',
      change: ({ model }) => (model!.tokenizer = otherFile()),
      says: /model\.tokenizer: .*other\.json is not what run "unit" was started with/,
    },
    { what: 'other tasks', change: ({ data }) => (data!.tasks = otherFile()), says: /data\.tasks: / },
    {
      what: 'a warm start that has been',
      change: (spec) => ((spec as unknown as Record<string, Part[]>).warm_start![0]!.lr = 1e-4),
      says: /warm_start\.0\.lr: a fork of unit has its parent's/,
    },
    {
      what: 'no step left',
      change: ({ trainer }) => (trainer!.max_training_steps = 1),
      says: /trainer\.max_training_steps: the run ends after step 3, and the fork begins after step 3/,
    },
  ];
  function otherFile(): string {
    const path = join(scratch, 'other.json');
    writeFileSync(path, '{}');
    return path;
  }

  test.each(refusals)('$what', async ({ name = 'refused', from = { run, step: 3 }, change, says }) => {
    const store = await copy();
    await open(await forkSpec(store, 'settled', { run, step: 1 }), store);
    const spec = { ...structuredClone(await forkSpec(store, name, { run, step: 3 })), fork: from };
    change?.(spec as unknown as Record<string, Part>);
    const before = await everything(store);
    expect(await messageOf(open(spec, store))).toMatch(says);
    expect(await everything(store)).toEqual(before);
  });

  async function everything(store: ObjectStore): Promise<string[]> {
    const keys: string[] = [];
    for await (const { key } of store.list('')) keys.push(key);
    return keys;
  }

  test('a name that is another’s, where the fork was begun from another step', async () => {
    const store = await copy();
    await expect(
      open(await forkSpec(store, 'begun', { run, step: 2 }), dyingAfter(store, 1)),
    ).rejects.toThrow('killed');
    expect(await messageOf(open(await forkSpec(store, 'begun', { run, step: 3 }), store))).toMatch(
      /a fork of unit into begun was begun after step 2, and never finished/,
    );
  });
});

test('a fork of a step whose checkpoint was collected begins at an older one', async () => {
  const store = await copy();
  const { spec } = await readRun(store, run);
  await tamper(store, `checkpoints/tests/unit/${run}/global_step_2/manifest.json`, () => null);
  expect(await listCheckpoints(store, await requireRecord(store, runKey(run), 'run'))).toEqual([]);
  expect(await open({ ...spec, name: 'late', fork: { run, step: 2 } }, store)).toMatchObject({
    position: { step: 2, lastCheckpoint: null },
  });
});
