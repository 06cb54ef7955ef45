import { truncate, unlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeEach, describe, expect, test } from 'vitest';
import type { Digest } from '../../src/spec/records/parts.js';
import type { RunRecord } from '../../src/spec/records/run-records.js';
import { checkpointHome } from '../../src/store/runs/checkpoints.js';
import { openDirectoryStore } from '../../src/store/objects/directory-store.js';
import {
  checkpointFileKey,
  checkpointManifestKey,
  evaluationResultKey,
  runKey,
  updateKey,
} from '../../src/store/record-keys.js';
import type { ObjectStore } from '../../src/store/objects/object-store.js';
import { adoptOrCreate } from '../../src/store/records/records.js';
import { StoreUnavailable } from '../../src/store/record-errors.js';
import { placeText, selectCheckpoints, type Selection } from '../../src/sweeps/checkpoint-selection.js';
import { parseSweepSpec } from '../../src/sweeps/sweep-input.js';
import { digestOf, recordsOfAllKinds } from '../store/fixtures.js';
import { type MadeRun, makeRunIn, stateOf } from '../store/made-runs.js';
import { scratchFolder } from '../support/scratch-folder.js';

const suite = digestOf('d');

const scratch = scratchFolder();
let folder: string;
let store: ObjectStore;
let count = 0;
beforeEach(async () => {
  folder = join(scratch, `store-${++count}`);
  store = await openDirectoryStore(folder);
});

const makeRun = (run: string, made: MadeRun): Promise<RunRecord> => makeRunIn(store, run, made);

async function evaluate(state: Digest, pass_at_1: number | null, on = suite): Promise<void> {
  const graded = pass_at_1 === null ? 0 : 2;
  const result = { ...recordsOfAllKinds().evaluation, state, suite: on, pass_at_1, graded };
  await adoptOrCreate(store, evaluationResultKey(state, on), 'evaluation', result);
}

async function select(reference: RunRecord, sweep: object): Promise<Selection> {
  const spec = parseSweepSpec({ name: 's', data_of: reference.run, suites: [{ name: 'final' }], ...sweep });
  return selectCheckpoints(store, spec, { digests: [suite], reference });
}
const places = ({ checkpoints }: Selection): string[] => checkpoints.map(placeText);
const of = async (reference: RunRecord, ...checkpoints: object[]) =>
  places(await select(reference, { checkpoints }));

describe('a sweep’s entry', () => {
  test('takes listed steps, a range, every n-th step, the newest, or all', async () => {
    const a = await makeRun('a', { steps: 12, checkpoints: [2, 4, 5, 6, 8, 10, 12] });
    expect(await of(a, { run: 'a', steps: [10, 2] })).toEqual(['a@2', 'a@10']);
    expect(await of(a, { run: 'a', range: { from: 4, to: 8 } })).toEqual(['a@4', 'a@5', 'a@6', 'a@8']);
    expect(await of(a, { run: 'a', range: { from: 4, every: 4 } })).toEqual(['a@4', 'a@8', 'a@12']);
    expect(await of(a, { run: 'a', every: 3 })).toEqual(['a@2', 'a@6', 'a@12']);
    expect(await of(a, { run: 'a', latest: 2 })).toEqual(['a@10', 'a@12']);
    expect(await of(a, { run: 'a', latest: 99 })).toHaveLength(7);
    expect(await of(a, { run: 'a' })).toHaveLength(7);
  });

  test('takes the best states by the suite with the most evaluations; of two equally good states, the newer', async () => {
    const a = await makeRun('a', { steps: 8, checkpoints: [2, 4, 6, 8] });
    await evaluate(stateOf('a', 2), 0.5);
    await evaluate(stateOf('a', 4), 0.7);
    await evaluate(stateOf('a', 6), 0.7);
    await evaluate(stateOf('a', 8), 1, digestOf('c'));
    await evaluate(stateOf('a', 8), null);
    expect(await of(a, { run: 'a', best: 1 })).toEqual(['a@6']);
    expect(await of(a, { run: 'a', best: 2 })).toEqual(['a@4', 'a@6']);
  });

  test('takes the best of the readable evaluations, and names the unreadable ones', async () => {
    const a = await makeRun('a', { steps: 4, checkpoints: [2, 4] });
    await evaluate(stateOf('a', 2), 0.5);
    const broken = evaluationResultKey(stateOf('a', 4), suite);
    await store.create(broken, Buffer.from('{'));
    const selection = await select(a, { checkpoints: [{ run: 'a', best: 1 }] });
    expect(places(selection)).toEqual(['a@2']);
    expect(selection.skipped).toMatchObject([
      { run: 'a', step: 4, reason: expect.stringContaining(broken) as string },
    ]);
  });

  test('takes states that are not evaluated yet, and may select none', async () => {
    const a = await makeRun('a', { steps: 4, checkpoints: [2, 4] });
    await evaluate(stateOf('a', 2), 0.5);
    const entry = { run: 'a', not_yet_evaluated: true };
    expect(await of(a, entry)).toEqual(['a@4']);
    expect(await of(a, { ...entry, latest: 1 })).toEqual(['a@4']);
    await evaluate(stateOf('a', 4), 0.5);
    expect(await of(a, entry)).toEqual([]);
  });

  test('counts a state as not yet evaluated if one of its suites has no result', async () => {
    const a = await makeRun('a', { steps: 4, checkpoints: [2, 4] });
    await evaluate(stateOf('a', 2), 0.5);
    const digests = [suite, digestOf('c')];
    const checkpoints = [{ run: 'a', not_yet_evaluated: true }];
    const spec = parseSweepSpec({ name: 's', checkpoints, suites: [{ name: 'final' }] });
    expect(places(await selectCheckpoints(store, spec, { digests, reference: a }))).toEqual(['a@2', 'a@4']);
    await evaluate(stateOf('a', 2), 0.5, digestOf('c'));
    expect(places(await selectCheckpoints(store, spec, { digests, reference: a }))).toEqual(['a@4']);
  });

  test('takes all runs of the project that match a pattern, and names the runs that cannot be compared', async () => {
    const a = await makeRun('a-1', { steps: 2, checkpoints: [2] });
    await makeRun('a-2', { steps: 2, checkpoints: [2] });
    await makeRun('a-3', { steps: 2, checkpoints: [2], model: 'other' });
    await makeRun('a-4', { steps: 2, checkpoints: [2], project: 'another' });
    await makeRun('b', { steps: 2, checkpoints: [2] });
    await makeRun('xa-5', { steps: 2, checkpoints: [2] });
    const found = await select(a, { checkpoints: [{ run: 'a-*' }] });
    expect(places(found)).toEqual(['a-1@2', 'a-2@2']);
    expect(found.skipped).toEqual([
      { run: 'a-3', step: null, reason: 'has model other, but the suites are of a-1, which has model m' },
    ]);
  });

  test('takes the other runs if one of the runs that match the pattern cannot be read', async () => {
    const a = await makeRun('a-1', { steps: 2, checkpoints: [2] });
    await store.create(runKey('a-2'), Buffer.from('{"schema":"longhaul.run/1000"}'));
    await makeRun('a-3', { steps: 2, checkpoints: [2] });
    await writeFile(join(folder, updateKey('a-3', 2)), '{');
    const found = await select(a, { checkpoints: [{ run: '*' }] });
    expect(places(found)).toEqual(['a-1@2']);
    expect(found.skipped).toEqual([
      {
        run: 'a-2',
        step: null,
        reason: expect.stringMatching(/^cannot be read: .*longhaul\.run\/1000/) as string,
      },
      { run: 'a-3', step: null, reason: expect.stringContaining(updateKey('a-3', 2)) as string },
    ]);
    await expect(select(a, { checkpoints: [{ run: 'a-2' }] })).rejects.toThrow('longhaul.run/1000');
  });

  test('may be one of several entries: runs are in the order of the entries, and each step comes once', async () => {
    const a = await makeRun('a', { steps: 4, checkpoints: [2, 4] });
    await makeRun('b', { steps: 4, checkpoints: [4] });
    expect(await of(a, { run: 'b' }, { run: 'a', latest: 1 }, { run: 'a' })).toEqual(['b@4', 'a@2', 'a@4']);
  });
});

describe('a state that several runs share is shown under', () => {
  const forked = async () => {
    const a = await makeRun('tiny', { steps: 4, checkpoints: [2, 4] });
    const lineage = { run: 'tiny', step: 2, state: stateOf('tiny', 2) };
    await makeRun('own1', { steps: 5, checkpoints: [5], lineage });
    return a;
  };

  test('the baseline’s name, wherever the baseline is among the entries', async () => {
    const a = await forked();
    const baseline = { run: 'tiny', step: 2, regression: 0.05 };
    const found = await select(a, { checkpoints: [{ run: 'own1' }, { run: 'tiny' }], baseline });
    expect(places(found)).toEqual(['own1@5', 'tiny@2', 'tiny@4']);
    expect(found.checkpoints[1]?.also).toEqual([{ run: 'own1', step: 2 }]);
    expect(found.baseline).toBe(stateOf('tiny', 2));
    // No other entry selects the fork.
    const fork = { ...baseline, run: 'own1' };
    expect(places(await select(a, { checkpoints: [{ run: 'tiny' }], baseline: fork }))).toEqual([
      'tiny@4',
      'own1@2',
    ]);
  });

  test('the run that an entry names with steps, rather than a run that a pattern matches', async () => {
    const a = await forked();
    const named = { run: 'own1', steps: [2] };
    expect(places(await select(a, { checkpoints: [{ run: 'tiny' }, named] }))).toEqual(['tiny@4', 'own1@2']);
    expect(places(await select(a, { checkpoints: [{ run: 't*' }, { run: 'own1' }] }))).toEqual([
      'tiny@4',
      'own1@2',
      'own1@5',
    ]);
  });

  test('the run that made it, if the entries select several runs in the same way', async () => {
    const a = await forked();
    for (const checkpoints of [[{ run: '*' }], [{ run: 'own1' }, { run: 'tiny' }]])
      expect(places(await select(a, { checkpoints })).sort()).toEqual(['own1@5', 'tiny@2', 'tiny@4']);
  });
});

test('a state is evaluated only once, even if several steps or a fork have it', async () => {
  const a = await makeRun('a', { steps: 4, checkpoints: [2, 3, 4], skipped: [3] });
  const lineage = { run: 'a', step: 3, state: stateOf('a', 2) };
  await makeRun('a~2', { steps: 5, checkpoints: [5], lineage });
  const { checkpoints } = await select(a, { checkpoints: [{ run: 'a' }, { run: 'a~2' }] });
  expect(checkpoints).toEqual([
    {
      run: 'a',
      step: 2,
      state: stateOf('a', 2),
      also: [
        { run: 'a', step: 3 },
        { run: 'a~2', step: 2 },
        { run: 'a~2', step: 3 },
      ],
      needed: true,
    },
    { run: 'a', step: 4, state: stateOf('a', 4), also: [], needed: true },
    { run: 'a~2', step: 5, state: stateOf('a~2', 5), also: [], needed: true },
  ]);
});

describe('the baseline', () => {
  test('is one of the states, even if no entry selects it', async () => {
    const a = await makeRun('a', { steps: 4, checkpoints: [2, 4] });
    const baseline = { run: 'a', step: 2 };
    const found = await select(a, { checkpoints: [{ run: 'a', latest: 1 }], baseline });
    expect(places(found)).toEqual(['a@2', 'a@4']);
    expect(found.baseline).toBe(stateOf('a', 2));
    expect((await select(a, { checkpoints: [{ run: 'a' }] })).baseline).toBeNull();
  });

  test('refuses the sweep if it is damaged, because all figures are compared with it', async () => {
    const a = await makeRun('a', { steps: 4, checkpoints: [2, 4] });
    await unlink(join(folder, checkpointFileKey(checkpointHome(a), 2, 'state.safetensors')));
    const sweep = { checkpoints: [{ run: 'a' }], baseline: { run: 'a', step: 2 } };
    await expect(select(a, sweep)).rejects.toThrow(
      'baseline.step: is 2 of a, whose checkpoint is damaged: its file state.safetensors is missing',
    );
  });
});

describe('a checkpoint that cannot be evaluated', () => {
  test('is refused, with the nearest steps, if it was given by step and is not in the store', async () => {
    const a = await makeRun('a', { steps: 10, checkpoints: [2, 6] });
    const checkpoints = [{ run: 'a', steps: [4, 20, 6] }, { run: 'b' }, { run: 'a', range: { from: 7 } }];
    await expect(select(a, { checkpoints, baseline: { run: 'a', step: 8 } })).rejects.toThrow(
      [
        'sweep s has 5 problems:',
        '  baseline.step: is 8, but a has no checkpoint of step 8: it was never uploaded, or was collected since; the nearest checkpoint is of step 6',
        '  checkpoints[0].steps[0]: is 4, but a has no checkpoint of step 4: it was never uploaded, or was collected since; the nearest checkpoints are of steps 2 and 6',
        '  checkpoints[0].steps[1]: is 20, but the last step of a is 10; the nearest checkpoint is of step 6',
        `  checkpoints[1].run: there is no run "b" in ${store.address}; see \`longhaul runs\``,
        '  checkpoints[2]: matches no checkpoint of a; the nearest checkpoint is of step 6',
      ].join('\n'),
    );
  });

  test('is not needed if its state has all results', async () => {
    const a = await makeRun('a', { steps: 4, checkpoints: [4] });
    await evaluate(stateOf('a', 2), 0.5);
    const { checkpoints } = await select(a, { checkpoints: [{ run: 'a', steps: [2, 4] }] });
    expect(checkpoints.map(({ step, needed }) => [step, needed])).toEqual([
      [2, false],
      [4, true],
    ]);
  });

  test('is left out and named if it is damaged, and no other checkpoint replaces it', async () => {
    const a = await makeRun('a', { steps: 12, checkpoints: [2, 4, 6, 8, 10, 12] });
    const home = checkpointHome(a);
    const file = (step: number) => join(folder, checkpointFileKey(home, step, 'state.safetensors'));
    const manifest = (step: number) => join(folder, checkpointManifestKey(home, step));
    await unlink(file(4));
    await truncate(file(6), 3);
    await writeFile(manifest(8), '{');
    const other = { ...recordsOfAllKinds().checkpoint, run: 'a', step: 10, state: digestOf('f') };
    await unlink(manifest(10));
    await adoptOrCreate(store, checkpointManifestKey(home, 10), 'checkpoint', other);
    const found = await select(a, { checkpoints: [{ run: 'a' }] });
    expect(places(found)).toEqual(['a@2', 'a@12']);
    expect(found.skipped.map(({ step, reason }) => `${step} ${reason}`)).toEqual([
      '4 its file state.safetensors is missing',
      expect.stringMatching(/^6 its file state\.safetensors has 3 bytes, but its manifest says \d+$/),
      expect.stringMatching(/^8 its manifest cannot be read: record checkpoints\/.*is unreadable/),
      expect.stringMatching(/^10 its manifest says state f{12}…, but the run’s records say /),
    ]);
    expect(await of(a, { run: 'a', range: { from: 9, to: 11 } })).toEqual([]);
  });

  test('is refused if its run has another model or tokenizer than the suites', async () => {
    const a = await makeRun('a', { steps: 2, checkpoints: [2] });
    await makeRun('b', { steps: 2, checkpoints: [2], model: 'large' });
    await makeRun('c', { steps: 2, checkpoints: [2], tokenizer: digestOf('9') });
    await expect(select(a, { checkpoints: [{ run: 'a' }, { run: 'b' }, { run: 'c' }] })).rejects.toThrow(
      [
        '  checkpoints[1].run: has model large, but the suites are of a, which has model m; compare b in a sweep of its own, with data_of: b',
        '  checkpoints[2].run: has another tokenizer than a, the run of the suites; compare c in a sweep of its own, with data_of: c',
      ].join('\n'),
    );
  });

  test('is left out if its run has another chat template or tool parser than the suites', async () => {
    const a = await makeRun('a', { steps: 2, checkpoints: [2] });
    await makeRun('b', { steps: 2, checkpoints: [2], chat_template: digestOf('9') });
    await makeRun('c', { steps: 2, checkpoints: [2], tool_parser: 'other' });
    const { skipped } = await select(a, { checkpoints: [{ run: '*' }] });
    expect(skipped.map(({ run, reason }) => `${run} ${reason}`)).toEqual([
      'b has another chat template than a, the run of the suites',
      expect.stringMatching(/^c parses tool calls with other, but a, the run of the suites, with /),
    ]);
  });

  test('does not count as damaged if the store does not answer', async () => {
    const a = await makeRun('a', { steps: 2, checkpoints: [2] });
    const away = new Proxy(store, {
      get: (target, name) => {
        const method = Reflect.get(target, name) as ((key: string) => Promise<unknown>) | string | undefined;
        if (typeof method !== 'function') return method;
        return (key: string) =>
          key.endsWith('.safetensors')
            ? Promise.reject(new StoreUnavailable('the store is away'))
            : method.call(target, key);
      },
    });
    const spec = parseSweepSpec({
      name: 's',
      checkpoints: [{ run: '*' }],
      data_of: 'a',
      suites: [{ name: 'x' }],
    });
    await expect(selectCheckpoints(away, spec, { digests: [suite], reference: a })).rejects.toThrow(
      'is away',
    );
  });

  test('is refused or left out if its run has other numerics than the suites', async () => {
    const a = await makeRun('a', { steps: 2, checkpoints: [2] });
    await makeRun('b', { steps: 2, checkpoints: [2], numerics: { backend: 'cpu', version: 9 } });
    const reason = expect.stringMatching(
      /^computes with cpu\/9, but the suites are of a, which computes with [a-z]+\/\d+$/,
    );
    expect((await select(a, { checkpoints: [{ run: '*' }] })).skipped).toEqual([
      { run: 'b', step: null, reason },
    ]);
    await expect(select(a, { checkpoints: [{ run: 'b' }] })).rejects.toThrow(
      /checkpoints\[0\]\.run: computes with cpu\/9, .*; compare b in a sweep of its own, with data_of: b/,
    );
  });

  test('leads to a refusal if the entry selects nothing: its run has no checkpoint, or no evaluated checkpoint', async () => {
    const a = await makeRun('a', { steps: 2, checkpoints: [] });
    await expect(select(a, { checkpoints: [{ run: 'a', latest: 1 }] })).rejects.toThrow(
      'checkpoints[0]: asks for checkpoints of a, which has none yet; wait for its first checkpoint, or add not_yet_evaluated: true',
    );
    const b = await makeRun('b', { steps: 2, checkpoints: [2] });
    await expect(select(b, { checkpoints: [{ run: 'b', best: 1 }] })).rejects.toThrow(
      'checkpoints[0]: asks for the best checkpoint of b, but none of them has an evaluation yet; use latest',
    );
  });
});
