// Names from outside cannot leave their prefix: for any name, the key is below its root, or an error is thrown.
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, posix } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { StateFolder } from '../../src/policy/state-folder.js';
import * as keys from '../../src/store/record-keys.js';
import type { ObjectStore } from '../../src/store/objects/object-store.js';
import { openStore } from '../../src/store/open-store.js';
import { parseS3Address } from '../../src/store/objects/s3-address.js';
import { BadKey } from '../../src/store/record-errors.js';

const digest = 'a'.repeat(64);
/** Names as users, specs, task files, environments and attackers may send them, some with look-alikes of letters, dots and slashes. */
const nasty = [
  ...[
    '',
    '.',
    '..',
    '...',
    '../x',
    'a/../../b',
    '/etc/passwd',
    '//',
    'a/',
    '/a',
    './a',
    'a\0b',
    'a\n',
    '\n',
    'a b',
  ],
  ...[
    '..\\..\\x',
    'C:\\x',
    '%2e%2e%2f',
    '..%2f',
    '~',
    '~root',
    'a~1',
    'a~02',
    'a~2~3',
    'a~2/../b',
    '.hidden',
    '.incoming',
  ],
  ...['．．／x', '‥', '∕etc', 'а', 'run\u200b', 'é', 'e\u0301', 'ﬀ', 'ＲＵＮ', '\u202eabc', '😀', '\ud800'],
  ...[
    'x'.repeat(65),
    'x'.repeat(10_000),
    '-',
    '--help',
    '-rf',
    '__proto__',
    'constructor',
    'CON',
    'a:b',
    'a?b',
    'a*',
    '$(x)',
  ],
];
const sound = fc.stringMatching(/^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$/);
/** Mostly valid names: one invalid part makes the whole key invalid, and some keys of five parts must be valid. */
const name = fc.oneof(
  fc.constantFrom(...nasty),
  { weight: 6, arbitrary: sound },
  fc.string({ unit: 'binary', maxLength: 80 }),
  fc.tuple(sound, fc.constantFrom(...nasty), sound).map((parts) => parts.join('')),
);
const run = fc.oneof(
  name,
  sound.map((one) => `${one}~2`),
);
const whole = fc.oneof(
  { weight: 6, arbitrary: fc.nat() },
  fc.double(),
  fc.constantFrom(
    -1,
    -0,
    NaN,
    Infinity,
    1e21,
    2 ** 53,
    '../1' as unknown as number,
    null as unknown as number,
  ),
);
const sha256 = fc.oneof(
  { weight: 3, arbitrary: fc.constant(digest) },
  name,
  sound.map((one) => one.padEnd(64, 'a')),
);
const sweep = fc.oneof(
  name,
  fc.tuple(name, name).map((parts) => parts.join('/')),
);
const home = fc.record({ project: name, model: name, run });
/** Paths of files in a checkpoint or dataset, such as a manifest may contain. */
const path = fc.oneof(
  name,
  fc.array(name, { maxLength: 3 }).map((parts) => parts.join('/')),
);

const made: Record<string, { root: string; make: fc.Arbitrary<() => string> }> = {};
function makes<Given extends unknown[]>(
  maker: keyof typeof keys,
  root: string,
  ...given: { [Index in keyof Given]: fc.Arbitrary<Given[Index]> }
): void {
  const make = keys[maker] as (...values: unknown[]) => string;
  made[maker] = {
    root,
    make: fc.tuple(...(given as fc.Arbitrary<unknown>[])).map((values) => () => make(...values)),
  };
}
for (const folder of [
  'runKey',
  'ownersFolder',
  'appliedFolder',
  'controlFolder',
  'noticesFolder',
  'instancesFolder',
  'runEvaluationsFolder',
  'refsFolder',
  'collectionsFolder',
  'stepsFolder',
] as const)
  makes(folder, 'runs/', run);
makes('refKey', 'runs/', run, run);
makes('runEvaluationKey', 'runs/', run, whole, name);
makes('reportKey', 'runs/', run, whole, sha256);
makes(
  'reportTranscriptsKey',
  'runs/',
  run,
  sha256.map((digest) => digest.slice(0, 16)),
);
makes('namesFolder', 'names/', name);
for (const ofStep of [
  'stepFolder',
  'planKey',
  'batchKey',
  'foldedBatchKey',
  'updateKey',
  'episodesFolder',
  'foldedEpisodesKey',
  'attemptsFolder',
  'savedStatesFolder',
] as const)
  makes(ofStep, 'runs/', run, whole);
makes('appliedKey', 'runs/', run, whole, whole);
makes('rescoredKey', 'runs/', run, whole, sha256);
makes('episodeKey', 'runs/', run, whole, whole, whole);
makes('attemptFolder', 'runs/', run, whole, name, name);
makes('evaluationsOfState', 'evals/', sha256);
for (const ofSuite of [
  'evaluationSuiteKey',
  'evaluationResultKey',
  'evaluationEpisodesFolder',
  'foldedEvaluationKey',
] as const)
  makes(ofSuite, 'evals/', sha256, sha256);
makes('evaluationEpisodeKey', 'evals/', sha256, sha256, whole, whole);
makes('checkpointsFolder', 'checkpoints/', home);
makes('checkpointFolder', 'checkpoints/', home, whole);
makes('checkpointManifestKey', 'checkpoints/', home, whole);
makes('checkpointFileKey', 'checkpoints/', home, whole, path);
makes('trajectoriesFolder', 'trajectories/evals/', run, whole, name);
makes('trajectoryKey', 'trajectories/evals/', run, whole, name, name);
makes('trajectoryResultsKey', 'trajectories/evals/', run, whole, name);
makes('datasetManifestKey', 'datasets/', name, name);
makes('datasetFileKey', 'datasets/', name, name, path);
makes('datasetVersionsFolder', 'datasets/', name);
makes('gatheredKey', 'datasets/', name, name);
makes('taughtKey', 'datasets/', name, name, sha256, whole);
makes('gateKey', 'datasets/', name, name, sha256, name);
makes('taughtFolder', 'datasets/', name, name);
makes('wavesFolder', 'runs/', run, whole);
makes('waveKey', 'runs/', run, whole, whole);
makes('assetKey', 'assets/', sha256);
makes('weightsManifestKey', 'weights/', sha256);
makes('weightsFileKey', 'weights/', sha256, path);
makes('sweepsOfProject', 'sweeps/', name);
makes('sweepFolder', 'sweeps/', sweep);
makes('sweepKey', 'sweeps/', sweep);
makes('comparisonKey', 'sweeps/', sweep, sha256);
makes('sweepResultsKey', 'sweeps/', sweep, sha256);
makes('tallyKey', 'tallies/', sha256, sha256);
made['sequenceKey'] = {
  root: 'names/',
  make: fc.tuple(name, whole).map(
    ([one, n]) =>
      () =>
        keys.sequenceKey(keys.namesFolder(one), n),
  ),
};
made['replacementKey'] = {
  root: 'runs/',
  make: fc.tuple(run, whole, whole).map(
    ([one, step, r]) =>
      () =>
        keys.replacementKey(keys.planKey(one, step), r),
  ),
};
const others = [
  'checkKey',
  'checkPrefix',
  'checkName',
  'checkRunId',
  'checkSweepId',
  'sweepsRoot',
  'evaluationsRoot',
  'datasetsRoot',
  'runIdOf',
  'nameOfRun',
  'parseStepFolder',
  'parseEpisodeKey',
  'parseEvaluationKey',
];

describe('a key', () => {
  it('of every kind is tested here', () => {
    const makers = Object.keys(keys).filter((exported) => !others.includes(exported));
    expect(Object.keys(made).sort()).toEqual(makers.sort());
  });

  it.each(Object.keys(made))('from %s is below its root, or an error is thrown', (maker) => {
    const { root, make } = made[maker]!;
    let keys = 0;
    fc.assert(
      fc.property(make, (call) => {
        let key: string;
        try {
          key = call();
        } catch (error) {
          expect(error).toBeInstanceOf(BadKey);
          return;
        }
        keys++;
        expectBelow(key, root);
      }),
      { numRuns: 400 },
    );
    expect(keys, 'sound names make keys').toBeGreaterThan(0);
  });

  it('contains its run and step, so that two runs never share a key', () => {
    const parts = fc.tuple(run, fc.nat());
    fc.assert(
      fc.property(parts, parts, ([a, m], [b, n]) => {
        fc.pre(isRunId(a) && isRunId(b) && (a !== b || m !== n));
        const below = (key: string, folder: string) => key.startsWith(folder);
        expect(below(keys.planKey(a, m), keys.stepFolder(b, n))).toBe(false);
        if (a !== b) expect(below(keys.stepsFolder(a), keys.stepsFolder(b))).toBe(false);
      }),
    );
  });
});

function isRunId(text: string): boolean {
  try {
    return keys.checkRunId(text) === text;
  } catch {
    return false;
  }
}

function expectBelow(key: string, root: string): void {
  expect(key).toMatch(/^[A-Za-z0-9._~/=-]+$/);
  expect(key.startsWith(root)).toBe(true);
  // Read as a file path, as a URI component or as a URL path, the key stays the same: it contains nothing to resolve.
  expect(posix.join('/store', key)).toBe(`/store/${key}`);
  expect(decodeURIComponent(key)).toBe(key);
  expect(new URL(key, 'http://store/').pathname).toBe(`/${key}`);
  expect(() => keys.checkPrefix(key)).not.toThrow();
}

describe('a directory store', () => {
  const outer = mkdtempSync(join(tmpdir(), 'longhaul-outer-'));
  let store: ObjectStore;
  beforeAll(async () => {
    mkdirSync(join(outer, 'store'));
    store = await openStore(`dir:${join(outer, 'store')}`);
  });
  afterAll(() => rmSync(outer, { recursive: true }));

  it('refuses every call with a key that leads out of its folder, and makes no file elsewhere', async () => {
    const verbs: ((key: string) => Promise<unknown>)[] = [
      (key) => store.create(key, Buffer.from('x')),
      (key) => store.createFromFile(key, join(outer, 'store')),
      (key) => store.get(key),
      (key) => store.head(key),
      (key) => store.delete(key),
      (key) => store.getToFile(key, join(outer, 'store', 'here')),
      (key) => store.stream(key),
      (key) => store.listFolder(key),
      async (key) => {
        for await (const _ of store.list(key)) return;
      },
    ];
    const leading = fc.oneof(
      fc.constantFrom(
        '..',
        '../x',
        'a/../../x',
        '/etc/passwd',
        'a/./../../x',
        '.incoming/x',
        'a\0',
        '..%2fx',
        '~/../..',
      ),
      path.filter(
        (key) =>
          !/^[A-Za-z0-9_~=-][A-Za-z0-9._~=-]*(\/[A-Za-z0-9_~=-][A-Za-z0-9._~=-]*)*\/?$/.test(key) &&
          key !== '',
      ),
    );
    await fc.assert(
      fc.asyncProperty(leading, fc.constantFrom(...verbs), async (key, verb) => {
        await expect(verb(key)).rejects.toThrow(BadKey);
      }),
      { numRuns: 500 },
    );
    expect(readdirSync(outer)).toEqual(['store']);
    expect(readdirSync(join(outer, 'store'))).toEqual(['.incoming']);
  });
});

describe('a prefix in a bucket', () => {
  it.each(['..%2fother', 'a%2f..%2f..%2fb', 'a/.hidden', 'a%00b', 'a//b', '%EF%BC%8E%EF%BC%8E'])(
    '%s is refused',
    (prefix) => {
      expect(() => parseS3Address(`s3://bucket/${prefix}`)).toThrow(/prefix of the store address/);
    },
  );
});

describe('the states on a node’s disk', () => {
  it('are in the folder of their run, for any run, step and digest', () => {
    const states = new StateFolder('/node/states');
    let paths = 0;
    fc.assert(
      fc.property(run, whole, sha256, (of, step, state) => {
        let found: string;
        try {
          found = states.path(of, { step, state });
        } catch {
          return;
        }
        paths++;
        expect(found.startsWith(`/node/states/${of}/`)).toBe(true);
        expect(posix.normalize(found)).toBe(found);
        expect(posix.dirname(found)).toBe(`/node/states/${of}`);
      }),
      { numRuns: 400 },
    );
    expect(paths).toBeGreaterThan(0);
  });
});
