// Real processes that share one directory store: they are killed between any two calls, and race for the same records.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { randomBytes } from 'node:crypto';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import typescript from 'typescript';
import { beforeAll, describe, expect, it } from 'vitest';
import { openDirectoryStore } from '../../../src/store/objects/directory-store.js';
import { readRecord, readSequence } from '../../../src/store/records/records.js';
import type { Traced } from './children/doomed-writer.js';
import { bytesOf } from './conformance.js';
import { scratchFolder } from '../../support/scratch-folder.js';

const register = fileURLToPath(new URL('../../support/preloads/typescript-register.mjs', import.meta.url));
const racer = fileURLToPath(new URL('children/racer.ts', import.meta.url));

const scratch = scratchFolder();
beforeAll(async () => {
  await compileDoomedWriter();
});

/** The tests start some fifty processes. Compiled once, each starts in a tenth of the time that it takes with the TypeScript loader. */
async function compileDoomedWriter(): Promise<void> {
  await compile('test/store/objects/children/doomed-writer', new Set());
  await writeFile(join(scratch, 'package.json'), '{"type":"module"}');
}

/** Compiles `file`, and the repository's files that it imports, into the scratch folder. */
async function compile(file: string, done: Set<string>): Promise<void> {
  if (done.has(file)) return;
  done.add(file);
  const source = await readFile(fileURLToPath(new URL(`../../../${file}.ts`, import.meta.url)), 'utf8');
  const { outputText } = typescript.transpileModule(source, {
    compilerOptions: { module: typescript.ModuleKind.ESNext, target: typescript.ScriptTarget.ES2023 },
  });
  await mkdir(dirname(join(scratch, file)), { recursive: true });
  await writeFile(join(scratch, `${file}.js`), outputText);
  for (const { fileName } of typescript.preProcessFile(outputText).importedFiles) {
    if (fileName.startsWith('.')) await compile(join(dirname(file), fileName.replace(/\.js$/, '')), done);
  }
}

interface Ended {
  signal: NodeJS.Signals | null;
  lines: string[];
  errors: string;
}

function start(program: string[], args: string[]): { child: ChildProcess; ended: Promise<Ended> } {
  const child = spawn(process.execPath, [...program, ...args]);
  const output = { out: '', error: '' };
  child.stdout.on('data', (piece: Buffer) => (output.out += piece.toString()));
  child.stderr.on('data', (piece: Buffer) => (output.error += piece.toString()));
  const ended = once(child, 'close').then(([, signal]) => ({
    signal: signal as NodeJS.Signals | null,
    lines: output.out.split('\n').filter(Boolean),
    errors: output.error,
  }));
  return { child, ended };
}

const key = 'runs/tiny/steps/000001/plan.json';

interface Written {
  calls: number;
  answer: string;
  trace: Traced[];
}

/** Starts a process that writes the key and is killed before its k-th call; k = 0 lets it live. */
function writeKey(root: string, source: string, way: string, k = 0): Promise<Ended> {
  const program = [join(scratch, 'test/store/objects/children/doomed-writer.js')];
  return start(program, [root, key, source, way, String(k)]).ended;
}

function writtenBy({ errors, lines }: Ended): Written {
  expect(errors).toBe('');
  return JSON.parse(lines[0] ?? '{}') as Written;
}

/** The calls that write to the disk, in order. Each must end before the next begins, and all before the store answers. */
function orderOf(trace: readonly Traced[]): string[] {
  const told = trace.filter(
    ({ call, path }) => /^(write|datasync|mkdir|link|sync)\b/.test(call) && path !== '.incoming',
  );
  const steps: string[] = [];
  for (let i = 0; i < told.length; i += 2) {
    const [begun, ended] = [told[i], told[i + 1]];
    expect(ended).toEqual({ call: `${begun?.call} ended`, path: begun?.path });
    const step = `${begun?.call} ${begun?.path.replace(/^\.incoming\/.*/, 'the new file')}`;
    if (steps.at(-1) !== step) steps.push(step);
  }
  return steps;
}

describe('a directory store answers only when the key is durable', () => {
  const aboveKey = ['runs', 'runs/tiny', 'runs/tiny/steps', 'runs/tiny/steps/000001'];
  const made = aboveKey.flatMap((folder) => [
    `mkdir ${folder}`,
    `sync ${dirname(folder).replace(/^\.$/, '')}`,
  ]);
  const linked = ['write the new file', 'datasync the new file', ...made, `link ${key}`];
  const synced = 'sync runs/tiny/steps/000001';

  let source: string;
  beforeAll(async () => {
    source = join(scratch, 'source');
    await writeFile(source, randomBytes(300_000));
  });

  it.each([
    ['created', 'bytes'],
    ['created', 'file'],
    ['exists', 'beaten'],
  ])(
    '“%s”: it syncs the bytes before it links the name, and the name before it answers (%s)',
    async (said, way) => {
      const { answer, trace } = writtenBy(await writeKey(join(scratch, `order-${way}`), source, way));
      expect(answer).toBe(said);
      expect(orderOf(trace)).toEqual([...linked, synced]);
    },
  );

  it('“exists”: it syncs the name, as the other author may not have done so yet', async () => {
    const root = join(scratch, 'order-exists');
    await writeKey(root, source, 'bytes');
    const { answer, trace } = writtenBy(await writeKey(root, source, 'bytes'));
    expect(answer).toBe('exists');
    expect(orderOf(trace)).toEqual([synced]);
  });
});

describe('a directory store whose writer is killed before any of its file system calls', () => {
  it.each(['bytes', 'file'])('holds the whole key or nothing, and a retry succeeds (%s)', async (way) => {
    const source = join(scratch, `source-${way}`);
    const body = randomBytes(300_000);
    await writeFile(source, body);
    const attempt = async (k: number) => {
      const root = join(scratch, `${way}-${k}`);
      return { root, ...(await writeKey(root, source, way, k)) };
    };
    const { calls, answer } = writtenBy(await attempt(0));
    expect(answer).toBe('created');
    expect(calls).toBeGreaterThan(15);

    const seen = { absent: 0, whole: 0 };
    const check = async (k: number) => {
      const { root, signal } = await attempt(k);
      expect(signal).toBe('SIGKILL');
      const store = await openDirectoryStore(root);
      const stored = await store.get(key);
      if (stored !== null) expect(Buffer.compare(stored, body)).toBe(0);
      seen[stored === null ? 'absent' : 'whole']++;
      expect(await store.create(key, stored === null ? body : bytesOf('late'))).toBe(
        stored === null ? 'created' : 'exists',
      );
      expect((await readFile(join(root, key))).equals(body)).toBe(true);
      await store.sweep(-1);
      expect(await readdir(join(root, '.incoming'))).toEqual([]);
      const keys: string[] = [];
      for await (const info of store.list('')) keys.push(info.key);
      expect(keys).toEqual([key]);
    };
    for (let k = 1; k <= calls; k += 4) {
      await Promise.all([k, k + 1, k + 2, k + 3].filter((each) => each <= calls).map(check));
    }
    // Some kills must come before the link and some after it.
    expect(seen.absent).toBeGreaterThan(5);
    expect(seen.whole).toBeGreaterThan(1);
  });
});

describe('two processes that write the same records', () => {
  it('agree on every choice, get Diverged once for each function, and share a sequence without gaps', async () => {
    const root = join(scratch, 'race');
    const rounds = 60;
    const racers = ['a', 'b'].map((author) =>
      start(['--import', register, racer], [root, author, String(rounds)]),
    );
    await Promise.all(racers.map(({ child }) => once(child.stdout as NodeJS.ReadableStream, 'data')));
    for (const { child } of racers) child.stdin?.write('go\n');
    const [a, b] = (await Promise.all(racers.map(({ ended }) => ended))).map(({ lines, errors }) => {
      expect(errors).toBe('');
      return JSON.parse(lines.at(-1) ?? '{}') as { chosen: string[]; diverged: boolean[]; numbers: number[] };
    });
    const store = await openDirectoryStore(root);

    expect(a?.chosen).toEqual(b?.chosen);
    for (const [round, author] of (a?.chosen ?? []).entries()) {
      expect((await readRecord(store, `choice/${round}.json`, 'plan'))?.digests.tool_parser).toBe(author);
    }
    for (let round = 0; round < rounds; round++) {
      expect([a?.diverged[round], b?.diverged[round]].filter(Boolean)).toHaveLength(1);
    }
    const numbers = [...(a?.numbers ?? []), ...(b?.numbers ?? [])].sort((x, y) => x - y);
    expect(numbers).toEqual(Array.from({ length: 2 * rounds }, (_, i) => i + 1));
    const ids = (await readSequence(store, 'sequence/', 'control')).map(({ update_id }) => update_id);
    expect(new Set(ids).size).toBe(2 * rounds);
  });
});
