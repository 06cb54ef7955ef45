// The tasks and demonstrations that a start takes up: from files, from a server, and from the store.
import { appendFileSync, writeFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { takeUpDataset } from '../../../src/data/run-dataset.js';
import { createOrchestratorActivities } from '../../../src/activities/orchestrator-activities.js';
import { generateDemonstrations } from '../../../examples/apps/generate.js';
import { appByName } from '../../../examples/apps/registry.js';
import { sha256Hex } from '../../../src/base/sha256.js';
import { parseRunSpec } from '../../../src/spec/spec-input.js';
import type { Demonstration } from '../../../src/spec/records/task.js';
import { datasetFileKey, datasetManifestKey } from '../../../src/store/record-keys.js';
import { readRun } from '../../../src/store/runs/run-records.js';
import { startForeignServer } from '../../environments/foreign-server.js';
import { startTaskServer } from '../../environments/task-server.js';
import { lastSftStep, reviseRecord, run, tamper, testTasks, workflow } from '../fixture.js';
import { environments, harness, useHarness } from '../own-harness.js';
import { type Changes, messageOf, noRunIsLeft, part, second, third } from './starts.js';

useHarness();

describe('a start with the tasks of a server', () => {
  const onServer = (tasks: string): Changes => ({ ...harness.spec, data: { ...part('data'), tasks } });
  const tries = async (spec: Changes, count: number): Promise<unknown[]> => {
    const { openRun: activity } = createOrchestratorActivities(harness.orchestrator);
    const failures = [];
    for (let attempt = 1; attempt <= count; attempt++) {
      const open = () => activity({ spec, workflow });
      failures.push(await harness.attempt('open', open, attempt).then(() => null, String));
    }
    return failures;
  };

  it('is tried again while the server refuses', async () => {
    const server = await startTaskServer(testTasks());
    server.refusals = 2;
    const refused = expect.stringMatching(/num_tasks answers with 503/) as string;
    expect(await tries(onServer(server.address), 3)).toEqual([refused, refused, null]);
  });

  it('is tried again while the server is down, however often', async () => {
    const before = await startTaskServer(testTasks());
    const spec = onServer(before.address);
    await before.stop();
    const failures = await tries(spec, 6);
    expect(new Set(failures)).toEqual(new Set([expect.stringMatching(/does not answer: .*ECONNREFUSED/)]));
    await noRunIsLeft();
    await startTaskServer(testTasks(), Number(new URL(before.address.slice('openenv+'.length)).port));
    expect(await tries(spec, 1)).toEqual([null]);
  });

  it('is refused later if the list has changed, but not if nobody lists it any more', async () => {
    const server = await startTaskServer(testTasks());
    const spec = onServer(server.address);
    await harness.open(spec);
    await harness.open(spec, second);
    server.tasks = testTasks().slice(1);
    expect(await messageOf(spec, third)).toMatch(
      /data\.tasks: openenv\+http.* differs from what run "unit" was started/,
    );
    // The chain that runs does not list the tasks again.
    await harness.open(spec, second);
    server.refusals = 1;
    await harness.open(spec, third);
    await server.stop();
    await harness.open(spec);
  });
});

describe('demonstrations in a user’s own files', () => {
  const shown = generateDemonstrations({
    ...{ apps: ['tracker'], seed: 1, drill_demonstrations: 0, teacher_demonstrations: 4 },
  });
  /** The spec with these demonstrations and these environments. */
  function specWith(servers: object[], demonstrations: readonly Demonstration[] = shown): Changes {
    const { demonstrations: file } = part('data') as { demonstrations: string };
    writeFileSync(file, demonstrations.map((line) => `${JSON.stringify(line)}\n`).join(''));
    const [phase] = harness.spec['warm_start'] as Changes[];
    return { ...harness.spec, environments: servers, warm_start: [{ ...phase, demonstrations: 'teacher' }] };
  }
  const toolsOf = async (name: string) => (await harness.node.runs.get(run)).tools[name];

  it('that name an app of the example server are trained on with the app’s tools', async () => {
    await harness.open(specWith([{ env_key: 'tracker', url: environments.url }]));
    expect(await toolsOf('tracker')).toEqual(appByName('tracker').tools);
    expect(await harness.advance(lastSftStep)).toMatchObject({ applied: true });
  });

  it('that name a server are trained on with the tools that the server had when the run started', async () => {
    const foreign = await startForeignServer(() => '0');
    await harness.open(specWith([{ env_key: 'tracker', url: foreign.url }]));
    await foreign.close();
    expect((await toolsOf('tracker'))?.map(({ name }) => name)).toEqual(['look']);
    expect(await harness.advance(lastSftStep)).toMatchObject({ applied: true });
  });

  it('give another version of the data if the tools are different', async () => {
    const version = async (servers: object[]) =>
      (await takeUpDataset(harness.store, parseRunSpec(specWith(servers)))).version;
    const foreign = await startForeignServer(() => '0');
    const [own, others] = [
      await version([{ env_key: 'tracker', url: environments.url }]),
      await version([{ env_key: 'tracker', url: foreign.url }]),
    ];
    await foreign.close();
    expect(own).not.toBe(others);
    expect(await version([{ env_key: 'tracker', url: environments.url }])).toBe(own);
  });

  it('are refused if the tools cannot be requested; the message has a fix for each environment', async () => {
    const named = (env_key: string): Demonstration => ({ ...shown[0], env_key }) as Demonstration;
    const message = await messageOf(
      specWith(
        [
          { env_key: 'tracker', url: environments.url },
          { env_key: 'crm' },
          { env_key: 'mail', url: 'http://127.0.0.1:9' },
        ],
        [...shown, ...['crm', 'mail', 'wiki'].map(named)],
      ),
    );
    expect(message).toContain('3 problems');
    expect(message).toMatch(
      /environments\[1\]: demonstrations name the environment "crm", which has no url; give its url/,
    );
    expect(message).toMatch(
      /environments\[2\]: demonstrations name the environment "mail", but no task does/,
    );
    expect(message).toMatch(/environments: demonstrations name the environment "wiki", which is not listed/);
    await noRunIsLeft();
  });
});

describe('data in the store', () => {
  it('has one version for the same content, whatever its source', async () => {
    const spec = parseRunSpec(harness.spec);
    const first = await takeUpDataset(harness.store, spec);
    expect(await takeUpDataset(harness.store, spec)).toEqual(first);
    appendFileSync(spec.data.tasks ?? '', `${JSON.stringify({ ...testTasks()[0], task_key: 'more' })}\n`);
    expect((await takeUpDataset(harness.store, spec)).version).not.toBe(first.version);
  });

  it('that was changed is never trained on, and never silently replaced', async () => {
    await harness.open();
    const { dataset } = await readRun(harness.store, run);
    const key = datasetFileKey(dataset.name, dataset.version, 'tasks.jsonl');
    await tamper(harness.store, key, (bytes) =>
      bytes.toString().replace('"split":"held_out"', '"split":"train"'),
    );
    await expect(harness.node.runs.get(run)).rejects.toMatchObject({ name: 'UnreadableRecord', key });
    await expect(takeUpDataset(harness.store, parseRunSpec(harness.spec))).rejects.toMatchObject({
      name: 'Diverged',
    });
  });

  it('is not read with a manifest that was changed together with it', async () => {
    await harness.open();
    const { name, version } = (await readRun(harness.store, run)).dataset;
    const bytes = Buffer.from(
      testTasks()
        .slice(1)
        .map((task) => `${JSON.stringify(task)}\n`)
        .join(''),
    );
    await tamper(harness.store, datasetFileKey(name, version, 'tasks.jsonl'), () => bytes);
    const key = datasetManifestKey(name, version);
    await reviseRecord(harness.store, key, 'dataset', ({ files, ...rest }) => ({
      ...rest,
      files: files.map((file) =>
        file.path === 'tasks.jsonl' ? { ...file, size: bytes.length, sha256: sha256Hex(bytes) } : file,
      ),
    }));
    await expect(harness.node.runs.get(run)).rejects.toMatchObject({ name: 'UnreadableRecord', key });
  });
});
