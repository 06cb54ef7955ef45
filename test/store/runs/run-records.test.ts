import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import type { ControlChange } from '../../../src/spec/records/control-records.js';
import type { RunRecord } from '../../../src/spec/records/run-records.js';
import { openDirectoryStore } from '../../../src/store/objects/directory-store.js';
import { recordDigest } from '../../../src/store/records/canonical.js';
import {
  checkName,
  checkRunId,
  controlFolder,
  episodeKey,
  ownersFolder,
  planKey,
  runIdOf,
  runKey,
  updateKey,
} from '../../../src/store/record-keys.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { checkOwner, claimRun, type OwnerState } from '../../../src/store/runs/owners.js';
import { openRunView } from '../../../src/store/runs/quarantine.js';
import {
  adoptOrCreate,
  appendSequence,
  readSequence,
  recordFunction,
} from '../../../src/store/records/records.js';
import { foldControl, foldedControl } from '../../../src/store/runs/control-records.js';
import {
  claimName,
  lastCommittedStep,
  readPlan,
  readRun,
  readState,
  readUpdate,
  readUpdateIfAny,
} from '../../../src/store/runs/run-records.js';
import { bytesOf } from '../objects/conformance.js';
import { digestOf, recordsOfAllKinds } from '../fixtures.js';
import { scratchFolder } from '../../support/scratch-folder.js';

const scratch = scratchFolder();
let store: ObjectStore;
let count = 0;
beforeEach(async () => {
  store = await openDirectoryStore(join(scratch, `store-${++count}`));
});

/** Digest of the state after a step in these tests: the step's hex digit 64 times. */
const stateOf = (step: number) => digestOf(step.toString(16));

async function writeRun(run: string, lineage: RunRecord['lineage'] = null): Promise<RunRecord> {
  const record = { ...recordsOfAllKinds().run, run, lineage };
  await adoptOrCreate(store, runKey(run), 'run', record);
  return record;
}

async function writeBase(run: string): Promise<void> {
  const { base } = recordsOfAllKinds();
  await recordFunction(store, updateKey(run, 0), 'base', {
    ...base,
    identity: { ...base.identity, run, state: stateOf(0) },
  });
}

async function writeUpdate(run: string, step: number, change: object = {}): Promise<void> {
  const { update } = recordsOfAllKinds();
  const identity = {
    ...update.identity,
    run,
    step,
    previous_state: stateOf(step - 1),
    state: stateOf(step),
    ...change,
  };
  await recordFunction(store, updateKey(run, step), 'update', { ...update, identity });
}

describe('a run’s steps', () => {
  it('are read up to the last committed step', async () => {
    await writeRun('tiny');
    expect(await lastCommittedStep(store, 'tiny')).toBe(-1);
    await writeBase('tiny');
    expect(await lastCommittedStep(store, 'tiny')).toBe(0);
    await writeUpdate('tiny', 1);
    await writeUpdate('tiny', 2);
    await adoptOrCreate(store, planKey('tiny', 3), 'plan', { ...recordsOfAllKinds().plan, step: 3 });
    expect(await lastCommittedStep(store, 'tiny')).toBe(2);
    expect(await readState(store, 'tiny', 2)).toBe(stateOf(2));
    expect(await readUpdateIfAny(store, 'tiny', 3)).toBeNull();
    await expect(readUpdate(store, 'tiny', 3)).rejects.toThrow(/step 3 of tiny is not committed/);
  });

  it('up to lineage.step are the parent’s, through any number of forks (R5)', async () => {
    await writeRun('tiny');
    await writeBase('tiny');
    for (let step = 1; step <= 4; step++) await writeUpdate('tiny', step);
    await writeRun('tiny~2', { run: 'tiny', step: 3, state: stateOf(3) });
    expect(await lastCommittedStep(store, 'tiny~2')).toBe(3);
    await writeUpdate('tiny~2', 4, { state: digestOf('e') });
    await writeRun('fork', { run: 'tiny~2', step: 4, state: digestOf('e') });
    await writeUpdate('fork', 5, { previous_state: digestOf('e') });
    expect(await lastCommittedStep(store, 'fork')).toBe(5);
    expect(await readState(store, 'fork', 4)).toBe(digestOf('e'));
    expect(await readState(store, 'fork', 3)).toBe(stateOf(3));
    expect(await readState(store, 'tiny', 4)).toBe(stateOf(4));
    expect(await readState(store, 'fork', 0)).toBe(stateOf(0));
  });

  it('that do not follow each other, or are stored under another step’s key, are unreadable', async () => {
    await writeRun('tiny');
    await writeBase('tiny');
    await writeUpdate('tiny', 1, { previous_state: digestOf('d') });
    await expect(lastCommittedStep(store, 'tiny')).rejects.toThrow(
      /000001\/update\.json.*continues from state ddd.*has state 000/,
    );
    await writeUpdate('tiny', 2, { step: 9 });
    await expect(readUpdate(store, 'tiny', 2)).rejects.toThrow(/it says step 9/);
    await writeUpdate('tiny', 3, { applied: { reason: 'non_finite' }, previous_state: stateOf(2) });
    await expect(lastCommittedStep(store, 'tiny')).rejects.toThrow();
  });

  it('have a plan whose digest other records name; a plan with another digest is unreadable', async () => {
    await writeRun('tiny');
    const { plan } = recordsOfAllKinds();
    await adoptOrCreate(store, planKey('tiny', 1), 'plan', plan);
    const place = { run: 'tiny', step: 1 };
    expect(await readPlan(store, { ...place, plan: recordDigest(plan) })).toEqual(plan);
    await expect(readPlan(store, { ...place, plan: digestOf('f') })).rejects.toThrow(/it was changed/);
  });

  it('of a missing run cause an error that names the run', async () => {
    await expect(readRun(store, 'none')).rejects.toThrow(/there is no run "none" in dir:/);
  });
});

describe('a control record', () => {
  const folded = (...changes: ControlChange[]) =>
    foldControl(changes.map((change, i) => ({ ...recordsOfAllKinds().control, n: i + 1, change })));

  it('sets absolute values: the last record wins when records are folded in order', () => {
    expect(folded()).toEqual({ n: 0, paused: false, stopAfter: null, lr: null, temperature: null });
    expect(
      folded(
        { kind: 'pause' },
        { kind: 'setHyperparameters', lr: 1, temperature: 0.5 },
        { kind: 'stopAfter', step: 9 },
        { kind: 'setHyperparameters', lr: 2 },
        { kind: 'resume' },
        { kind: 'pause' },
      ),
    ).toEqual({ n: 6, paused: true, stopAfter: 9, lr: 2, temperature: 0.5 });
  });

  it('that pauses with `now` holds until a resume, even if another pause follows', () => {
    expect(folded({ kind: 'pause', now: true }, { kind: 'pause' })).toMatchObject({
      paused: true,
      pausedNow: true,
    });
    const resumed = folded({ kind: 'pause', now: true }, { kind: 'resume' }, { kind: 'pause' });
    expect(resumed).toMatchObject({ paused: true });
    expect(resumed).not.toHaveProperty('pausedNow');
    expect(folded({ kind: 'checkpointNow', step: 3 }, { kind: 'checkpointNow', step: 7 }).checkpoint).toBe(7);
  });

  it('that quarantines a key makes the run read and write KEY.r1 instead, and keeps the old bytes (R24)', async () => {
    const [key, other] = [episodeKey('tiny', 1, 0, 0), episodeKey('tiny', 1, 0, 1)];
    await store.create(key, bytesOf('broken'));
    const { episode, control } = recordsOfAllKinds();
    await adoptOrCreate(store, other, 'episode', episode);
    const change: ControlChange = { kind: 'quarantine', key };
    await appendSequence(store, controlFolder('tiny'), 'control', (n) => ({ ...control, n, change }));
    const view = await openRunView(store, 'tiny');
    expect(await view.get(key)).toBeNull();
    const folder = key.slice(0, key.lastIndexOf('/') + 1);
    expect(await view.listFolder(folder)).toEqual(['00000.001.json.gz']);
    expect(await adoptOrCreate(view, key, 'episode', { ...episode, sample: 0 })).toMatchObject({
      adopted: false,
    });
    expect(await view.listFolder(folder)).toEqual(['00000.000.json.gz', '00000.001.json.gz']);
    expect(await store.head(`${key}.r1`)).not.toBeNull();
    expect(Buffer.from((await store.get(key)) ?? []).toString()).toBe('broken');
    const listed: string[] = [];
    for await (const info of view.list(folder)) listed.push(info.key);
    expect(listed).toEqual([key, other]);
    expect(await foldedControl(view, 'tiny')).toMatchObject({ n: 1 });
  });

  it.each([updateKey('tiny', 1), runKey('tiny'), 'names/tiny/1.json', 'runs/tiny/control/1.json'])(
    'cannot quarantine %s',
    async (key) => {
      const change: ControlChange = { kind: 'quarantine', key };
      await appendSequence(store, controlFolder('tiny'), 'control', (n) => ({
        ...recordsOfAllKinds().control,
        n,
        change,
      }));
      await expect(openRunView(store, 'tiny')).rejects.toThrow(/cannot be quarantined/);
    },
  );
});

describe('an owner (R20)', () => {
  const execution = (id: string) => ({
    address: 'a:1',
    clusterId: 'c',
    namespace: 'default',
    workflowId: 'train/tiny',
    firstExecutionRunId: id,
  });
  const says = (state: OwnerState) => () => Promise.resolve(state);
  const never = () => Promise.reject(new Error('nobody needs to be asked'));

  it('may claim the run again; another workflow may claim it if the owner is closed or unknown', async () => {
    expect(await claimRun(store, 'tiny', execution('1'), never)).toBe(1);
    expect(await claimRun(store, 'tiny', execution('1'), never)).toBe(2);
    expect(await claimRun(store, 'tiny', execution('2'), says('closed'))).toBe(3);
    expect(await claimRun(store, 'tiny', execution('3'), says('unknown'))).toBe(4);
  });

  it.each(['open', 'unreachable'] as const)(
    'that is %s keeps others from claiming the run unless they take over, and the error names the owner',
    async (state) => {
      await claimRun(store, 'tiny', execution('1'), never);
      await expect(claimRun(store, 'tiny', execution('2'), says(state))).rejects.toMatchObject({
        name: 'RunOwned',
        message: expect.stringMatching(/train\/tiny.*first run id 1.*a:1.*--take-over/) as string,
      });
      expect(await claimRun(store, 'tiny', execution('2'), never, { takeOver: true })).toBe(2);
    },
  );

  it('is the only one even if several workflows find the last owner closed at the same moment', async () => {
    await claimRun(store, 'tiny', execution('old'), never);
    const state = (owner: { firstExecutionRunId: string }) =>
      Promise.resolve(owner.firstExecutionRunId === 'old' ? ('closed' as const) : ('open' as const));
    const claims = await Promise.allSettled(
      ['x', 'y', 'z'].map((id) => claimRun(store, 'tiny', execution(id), state)),
    );
    expect(claims.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
    expect(await readSequence(store, ownersFolder('tiny'), 'owner')).toHaveLength(2);
  });

  it('with an older number gets OwnerChanged', async () => {
    const first = await claimRun(store, 'tiny', execution('1'), never);
    await checkOwner(store, 'tiny', first);
    await claimRun(store, 'tiny', execution('2'), says('closed'));
    await expect(checkOwner(store, 'tiny', first)).rejects.toMatchObject({ name: 'OwnerChanged' });
  });

  it('keeps the run if a late attempt of its own claim writes the next owner record', async () => {
    const first = await claimRun(store, 'tiny', execution('1'), never);
    await claimRun(store, 'tiny', execution('1'), never);
    await checkOwner(store, 'tiny', first);
    await claimRun(store, 'tiny', execution('2'), says('closed'));
    await expect(checkOwner(store, 'tiny', first)).rejects.toMatchObject({ name: 'OwnerChanged' });
  });
});

it('callers that claim one name at once get the same run', async () => {
  const runs = await Promise.all(Array.from({ length: 8 }, () => claimName(store, 'tiny')));
  expect(new Set(runs)).toEqual(new Set(['tiny']));
});

describe('names from outside', () => {
  it.each(['a', 'A-b_c.9', 'x'.repeat(64)])('%s is accepted', (name) =>
    expect(checkName(name, 'name')).toBe(name),
  );
  it.each(['', '.a', '..', 'a/b', 'a~2', 'a b', 'ü', 'x'.repeat(65), 'a\n'])('%j is refused', (name) => {
    expect(() => checkName(name, 'run name')).toThrow(/run name ".*" cannot be used/s);
  });

  it('become run ids with a timeline number', () => {
    expect([runIdOf('a', 1), runIdOf('a', 2)]).toEqual(['a', 'a~2']);
    expect(checkRunId('a~12')).toBe('a~12');
    for (const run of ['a~1', 'a~', '~2', 'a~b', 'a~02', 'a~2~3']) expect(() => checkRunId(run)).toThrow();
  });

  it('become parts of episode keys, with slot and sample', () => {
    expect(episodeKey('a', 120, 3, 14)).toBe('runs/a/steps/000120/episodes/00003.014.json.gz');
  });
});
