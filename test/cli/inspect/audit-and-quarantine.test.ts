// The commands that audit a store and set records aside, on a store without a real run.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import { parseReplayRange } from '../../../src/activities/reports/replay-audit.js';
import { quarantine, quarantineText } from '../../../src/cli/store/quarantine-command.js';
import {
  assetKey,
  attemptsFolder,
  batchKey,
  checkpointManifestKey,
  datasetFileKey,
  datasetManifestKey,
  episodeKey,
  evaluationEpisodeKey,
  evaluationResultKey,
  ownersFolder,
  planKey,
  rescoredKey,
  runKey,
  sequenceKey,
  updateKey,
} from '../../../src/store/record-keys.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { openStore } from '../../../src/store/open-store.js';
import { openRunView, remedyFor } from '../../../src/store/runs/quarantine.js';
import { encodeRecord } from '../../../src/store/records/record-codec.js';
import { recordsOfAllKinds } from '../../store/fixtures.js';
import { type Answer, longhaul as commandLine } from '../../support/command-line.js';

const folder = mkdtempSync(join(tmpdir(), 'longhaul-audit-cli-'));
const address = `dir:${folder}`;
let store: ObjectStore;
const records = recordsOfAllKinds();

beforeAll(async () => {
  store = await openStore(address);
  await store.create(runKey('tiny'), await encodeRecord('run', records.run));
  await store.create('names/tiny/1.json', await encodeRecord('name', records.name));
  await store.create(updateKey('tiny', 0), await encodeRecord('base', records.base));
  await store.create(planKey('tiny', 1), Buffer.from('{"schema":"longhaul.plan/4","cut of'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const longhaul = (...args: string[]): Promise<Answer> => commandLine([...args, '--store', address]);

describe('longhaul audit', () => {
  test('exits with 0 and prints figures if nothing is wrong; otherwise exits with 1 and prints each violation', async () => {
    expect(await longhaul('audit', 'tiny')).toMatchObject({
      code: 0,
      output: expect.stringMatching(/steps +1 with the base.*\n[^]*violations +none/) as string,
    });
    const orphan = updateKey('tiny', 2);
    await store.create(orphan, await encodeRecord('update', records.update));
    const { code, output } = await longhaul('audit', 'tiny', '--json');
    await store.delete(orphan);
    expect(code).toBe(1);
    const { violations } = JSON.parse(output) as { violations: { rule: string; key: string }[] };
    expect(violations).toContainEqual(expect.objectContaining({ rule: 'R5', key: updateKey('tiny', 1) }));
  });

  test('reports its progress to a caller that asks for it', async () => {
    const places: string[] = [];
    await auditRun(store, 'tiny', (place) => places.push(place));
    expect(places.slice(0, 2)).toEqual(['step 0 of 0', 'attempts of step 0 of 0']);
  });

  test('says that a run or a range of steps does not exist', async () => {
    expect(await longhaul('audit', 'none')).toMatchObject({
      code: 1,
      errors: expect.stringMatching(/there is no run "none"/) as string,
    });
    expect((await longhaul('audit', 'tiny', '--replay', '5..3')).errors).toMatch(
      /"5..3" is not a range of steps: write A..B/,
    );
    expect((await longhaul('audit', 'tiny', '--replay', '1..2')).errors).toMatch(/no committed update yet/);
  });

  test.each([
    ['3', { from: 3, to: 3 }],
    ['3..12', { from: 3, to: 12 }],
  ])('reads the range %s', (text, range) => expect(parseReplayRange(text)).toEqual(range));

  test.each(['0..2', '2..', '..', 'a', '1-2', '4..3'])('refuses the range %s', (text) =>
    expect(() => parseReplayRange(text)).toThrow(/not a range of steps/),
  );
});

describe('longhaul quarantine', () => {
  test('writes one control record, after which the run’s readers ignore the key', async () => {
    const key = planKey('tiny', 1);
    const { code, output } = await longhaul('quarantine', key);
    expect(code).toBe(0);
    expect(output).toContain(`${key}.r1`);
    expect(output).toContain('longhaul resume tiny');
    expect(await quarantine(store, key)).toEqual({ run: 'tiny', key, control: 1, written: false, also: [] });
    expect(await (await openRunView(store, 'tiny')).get(key)).toBeNull();
    expect(await store.get(key)).not.toBeNull();
  });

  test('also sets aside the records that were made from this one, and no others', async () => {
    const [episode, batch, earlier] = [
      episodeKey('tiny', 3, 0, 0),
      batchKey('tiny', 3),
      episodeKey('tiny', 2, 0, 0),
    ];
    const attempt = `${attemptsFolder('tiny', 3)}collect/1/1.json`;
    for (const key of [planKey('tiny', 3), episode, batch, earlier, attempt]) {
      await store.create(key, Buffer.from('bytes'));
    }
    expect(await quarantine(store, episode)).toMatchObject({ written: true, also: [batch] });
    // These replacements were made by the plan that is set aside next, so they belong to it.
    for (const key of [`${episode}.r1`, `${batch}.r1`]) await store.create(key, Buffer.from('anew'));
    const done = await quarantine(store, planKey('tiny', 3));
    expect(done).toMatchObject({ written: true, also: [`${batch}.r1`, `${episode}.r1`] });
    const view = await openRunView(store, 'tiny');
    for (const key of [planKey('tiny', 3), episode, batch]) expect(await view.get(key)).toBeNull();
    for (const key of [earlier, attempt]) expect(await view.get(key)).not.toBeNull();
  });

  test('says how to continue if the replacement is broken, too', async () => {
    const text = quarantineText(await quarantine(store, planKey('tiny', 1)));
    expect(text).toContain('was set aside before');
    expect(text).toContain(`longhaul quarantine ${planKey('tiny', 1)}.r1`);
  });

  test('hides an evaluation’s episode and result from one run', async () => {
    const [state, suite] = ['a'.repeat(64), 'b'.repeat(64)];
    const [episode, result] = [evaluationEpisodeKey(state, suite, 0, 0), evaluationResultKey(state, suite)];
    for (const key of [episode, result]) await store.create(key, Buffer.from('bytes'));
    await expect(quarantine(store, episode)).rejects.toThrow(/--run RUN/);
    expect(await quarantine(store, episode, 'tiny')).toMatchObject({ also: [result] });
  });

  test('refuses a record that nothing can replace, a missing record and a missing run', async () => {
    await expect(quarantine(store, updateKey('tiny', 0))).rejects.toThrow(/nothing can replace it/);
    await expect(quarantine(store, planKey('tiny', 9))).rejects.toThrow(/there is nothing to set aside/);
    await expect(quarantine(store, planKey('none', 1))).rejects.toThrow(/there is no run "none"/);
  });

  test('refuses records of a committed step, because nobody would make them again', async () => {
    const key = batchKey('tiny', 5);
    for (const one of [key, updateKey('tiny', 5)]) await store.create(one, Buffer.from('bytes'));
    await expect(quarantine(store, key)).rejects.toThrow(/its step is committed/);
  });

  test('is suggested to a blocked run exactly if it would accept the record', async () => {
    const state = 'c'.repeat(64);
    const committed = [
      planKey('tiny', 7),
      episodeKey('tiny', 7, 0, 0),
      batchKey('tiny', 7),
      rescoredKey('tiny', 7, 'f'.repeat(64)),
      updateKey('tiny', 7),
    ];
    const open = [
      planKey('tiny', 8),
      episodeKey('tiny', 8, 0, 0),
      batchKey('tiny', 8),
      rescoredKey('tiny', 8, 'f'.repeat(64)),
    ];
    const evaluation = evaluationResultKey(state, 'd'.repeat(64));
    for (const key of [...committed, ...open, evaluation]) await store.create(key, Buffer.from('bytes'));
    const missing = [planKey('tiny', 9), evaluationResultKey(state, 'e'.repeat(64))];
    for (const key of [runKey('tiny'), updateKey('tiny', 0), ...committed, ...open, evaluation, ...missing]) {
      const remedy = await remedyFor(store, key, 'tiny');
      const command = /`longhaul (quarantine [^`]+)`/.exec(remedy)?.[1]?.split(' ');
      const refused = await quarantine(store, key, 'tiny').then(
        () => false,
        () => true,
      );
      expect({ key, named: command !== undefined }).toEqual({ key, named: !refused });
      if (command) expect(await longhaul(...command)).toMatchObject({ code: 0 });
    }
  });

  test.each([
    runKey('tiny'),
    'names/tiny/1.json',
    sequenceKey(ownersFolder('tiny'), 1),
    assetKey('a'.repeat(64)),
    datasetFileKey('files', '1', 'tasks.jsonl'),
    datasetManifestKey('files', '1'),
    checkpointManifestKey({ project: 'p', model: 'm', run: 'tiny' }, 2),
  ])('refuses %s, which no run makes again, and says what to do', async (key) => {
    await expect(quarantine(store, key, 'tiny')).rejects.toThrow(
      /can only make plans, episodes, batches and evaluations again. Restore this record from a copy/,
    );
  });
});
