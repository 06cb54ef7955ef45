// Audits the records of a simulated run on a Tinker server: which models took which batches, and what its states are named.
// The run's episodes are invented, so only violations of R32 and R34 and unreadable records are compared.
import { beforeEach, describe, expect, test } from 'vitest';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import { quarantine } from '../../../src/cli/store/quarantine-command.js';
import type { AppliedRecord } from '../../../src/spec/records/served-model.js';
import { appliedKey, updateKey } from '../../../src/store/record-keys.js';
import { encodeRecord } from '../../../src/store/records/record-codec.js';
import { requireRecord } from '../../../src/store/records/records.js';
import { undisturbed, type Undisturbed } from '../../policy/served/simulation/undisturbed.js';

let world: Undisturbed;

/** The first model took three batches; the second one took the last two of them again. */
beforeEach(async () => {
  world = await undisturbed();
  for (const save of world.server.saves.values()) if (!save.name.startsWith('s000001')) save.adapters = null;
  await world.worker('b').sample(world.run, 3, 1, 'run');
});

/** The second model is instance 3: number 2 records that the first model was given up. */
const key = appliedKey('tiny', 3, 3);

const found = async () =>
  (await auditRun(world.store, 'tiny')).violations
    .filter((one) => one.rule === 'R34' || one.key.includes('/applied/'))
    .map(({ rule, key, problem }) => `${rule} ${key} ${problem}`);

async function change(changes: Partial<AppliedRecord>): Promise<void> {
  const applied = await requireRecord(world.store, key, 'applied');
  world.memory.objects.set(key, await encodeRecord('applied', { ...applied, ...changes }));
}

test('finds nothing in the records of a run that went well', async () => {
  expect(world.memory.objects.has(key)).toBe(true);
  expect(await found()).toEqual([]);
});

describe('finds a record of a batch that was applied again', () => {
  test.each<[string, Partial<AppliedRecord>, string]>([
    ['of another batch', { step_id: 'f'.repeat(64) }, 'its step_id is not the one in the update of step 3'],
    ['of another step', { step: 2 }, 'it says step 2 of instance 3 of tiny'],
    ['of requests that came earlier', { requests: 1 }, 'it counts 1 requests, and '],
  ])('%s', async (_, changes, problem) => {
    await change(changes);
    expect(await found()).toEqual([expect.stringContaining(`R34 ${key} ${problem}`)]);
  });

  test('of an instance that is not there', async () => {
    const applied = await requireRecord(world.store, key, 'applied');
    const other = appliedKey('tiny', 7, 3);
    world.memory.create(other, await encodeRecord('applied', { ...applied, instance: 7 }));
    expect(await found()).toEqual([expect.stringContaining(`R34 ${other} it names instance 7`)]);
  });
});

test('finds an update that names an instance that is not there', async () => {
  const update = await requireRecord(world.store, updateKey('tiny', 3), 'update');
  const served = { ...update.observed.served!, instance: 9 };
  const changed = { ...update, observed: { ...update.observed, served } };
  world.memory.objects.set(updateKey('tiny', 3), await encodeRecord('update', changed));
  expect(await found()).toEqual([expect.stringContaining('it names instance 9')]);
});

describe('finds a state that is not named for what it was computed from', () => {
  const misnamed = async () =>
    (await auditRun(world.store, 'tiny')).violations
      .filter(({ rule }) => rule === 'R32')
      .map(({ key, problem }) => `${key} ${problem}`);

  test('an update’s', async () => {
    expect(await misnamed()).toEqual([]);
    const last = updateKey('tiny', 3);
    const update = await requireRecord(world.store, last, 'update');
    const identity = { ...update.identity, state: 'a'.repeat(64) };
    world.memory.objects.set(last, await encodeRecord('update', { ...update, identity }));
    expect(await misnamed()).toEqual([`${last} its state is not named for the state before and the step id`]);
  });

  test('state 0', async () => {
    const first = updateKey('tiny', 0);
    const base = await requireRecord(world.store, first, 'base');
    const numerics = { ...base.identity.numerics, service: 'another' };
    const identity = { ...base.identity, numerics };
    world.memory.objects.set(first, await encodeRecord('base', { ...base, identity }));
    expect(await misnamed()).toEqual([
      expect.stringContaining(`${first} its state is not named for the model, its rank and its seed`),
    ]);
  });
});

test('finds a record that cannot be read; set aside, it blocks nobody', async () => {
  world.memory.objects.set(key, Buffer.from('{'));
  expect(await found()).toEqual([expect.stringContaining(`R1 ${key}`)]);
  const next = () => world.worker('b').sample(world.run, 3, 1, 'run');
  await expect(next()).rejects.toMatchObject({ name: 'UnreadableRecord' });
  await quarantine(world.store, key);
  await next();
  expect(world.memory.objects.has(`${key}.r1`)).toBe(true);
});
