// A run can be resumed from its store alone: the spec then comes from its records, not from a file.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { forkSpec } from '../../../src/activities/run/fork-run.js';
import { runCommandLine } from '../../../src/cli/program.js';
import { storedSpec } from '../../../src/cli/train/stored-spec.js';
import type { OwnerRecord } from '../../../src/spec/records/run-records.js';
import type { RunSpec } from '../../../src/spec/run-spec.js';
import { parseRunSpec, readSpecFile } from '../../../src/spec/spec-input.js';
import { namesFolder, ownersFolder, runIdOf, runKey, sequenceKey } from '../../../src/store/record-keys.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { openStore } from '../../../src/store/open-store.js';
import { atServers } from '../../../src/store/runs/owners.js';
import { encodeRecord } from '../../../src/store/records/record-codec.js';
import { recordsOfAllKinds } from '../../store/fixtures.js';

const folder = mkdtempSync(join(tmpdir(), 'longhaul-stored-spec-'));
let store: ObjectStore;
let tiny: RunSpec;
beforeAll(async () => {
  store = await openStore(`dir:${folder}`);
  tiny = await readSpecFile('presets/tiny.yaml');
});
afterAll(() => rmSync(folder, { recursive: true }));

interface Timeline {
  spec: RunSpec;
  owners?: OwnerRecord['observed'][];
}

async function written(name: string, timelines: Timeline[]): Promise<void> {
  const records = recordsOfAllKinds();
  for (const [index, { spec, owners = [] }] of timelines.entries()) {
    const n = index + 1;
    const run = runIdOf(name, n);
    await store.create(runKey(run), await encodeRecord('run', { ...records.run, run, name, spec }));
    const named = { schema: 'longhaul.name/1', n, run } as const;
    await store.create(sequenceKey(namesFolder(name), n), await encodeRecord('name', named));
    for (const [at, observed] of owners.entries()) {
      const owner = { ...records.owner, n: at + 1, observed };
      await store.create(sequenceKey(ownersFolder(run), at + 1), await encodeRecord('owner', owner));
    }
  }
}

it('the stored spec is the newest timeline’s, whichever timeline is named', async () => {
  const slower = { ...tiny, name: 'back', trainer: { ...tiny.trainer, lr: 1e-5 } };
  await written('back', [{ spec: { ...tiny, name: 'back' } }, { spec: slower }]);
  expect(await storedSpec(store, 'back')).toEqual({ run: 'back~2', spec: parseRunSpec(slower) });
  expect((await storedSpec(store, 'back~1')).run).toBe('back~2');
});

it('the stored spec has the servers and the budget of the newest start', async () => {
  const [first, ...others] = tiny.environments;
  if (!first) throw new Error('the preset has no environment');
  const spec = {
    ...tiny,
    name: 'moved',
    budget: { max_tokens: 1 },
    environments: [{ ...first, url: 'http://old:1' }, ...others],
  };
  const observed = { at: '2026-01-01T00:00:00.000Z', by: 'a test' };
  const at = (url: string | null) => ({ environment_urls: { [first.env_key]: url } });
  await written('moved', [
    { spec, owners: [observed, { ...observed, ...at('http://new:1'), budget: { max_tokens: 9 } }] },
  ]);
  expect((await storedSpec(store, 'moved')).spec).toMatchObject({
    budget: { max_tokens: 9 },
    environments: [{ url: 'http://new:1' }, ...others],
  });
  await written('home', [{ spec: { ...spec, name: 'home' }, owners: [{ ...observed, ...at(null) }] }]);
  const home = (await storedSpec(store, 'home')).spec;
  expect(home.environments[0]).not.toHaveProperty('url');
  expect(home).not.toHaveProperty('budget');
});

it('a fork of a run, and the tasks that a moved server lists, are at the servers of the newest start', async () => {
  const observed = { at: '2026-01-01T00:00:00.000Z', by: 'a test' };
  const urls = Object.fromEntries(tiny.environments.map(({ env_key }) => [env_key, 'http://new:1']));
  await written('away', [
    { spec: { ...tiny, name: 'away' }, owners: [{ ...observed, environment_urls: urls }] },
  ]);
  const there = {
    data: { tasks: String(tiny.data.tasks).replace('http://127.0.0.1:8030/', 'http://new:1/') },
    environments: tiny.environments.map(() => ({ url: 'http://new:1' })),
  };
  expect((await storedSpec(store, 'away')).spec).toMatchObject(there);
  const fork = { run: 'away', step: 0 };
  expect(await forkSpec(store, 'child', fork)).toMatchObject({ ...there, name: 'child', fork });
  const elsewhere = { ...tiny, data: { ...tiny.data, tasks: 'openenv+http://lists:2/tracker' } };
  expect(atServers(elsewhere, urls).data.tasks).toBe('openenv+http://lists:2/tracker');
});

it('spec --run prints the stored spec as a file that spec accepts', async () => {
  await written('plain', [{ spec: { ...tiny, name: 'plain' } }]);
  const log = vi.spyOn(console, 'log').mockImplementation(() => undefined);
  expect(await runCommandLine(['spec', '--run', 'plain', '--store', `dir:${folder}`])).toBe(0);
  const printed = String(log.mock.calls[0]?.[0]);
  log.mockRestore();
  expect(parseRunSpec(JSON.parse(printed))).toEqual({ ...tiny, name: 'plain' });
});

it('an unknown run is an error that lists the known runs', async () => {
  await written('known', [{ spec: { ...tiny, name: 'known' } }]);
  await expect(storedSpec(store, 'unknown')).rejects.toThrow(/there is no run "unknown" in .*known/);
});
