// A run, a key or a node that a person types is only a name. It must not lead out of the store or out of a folder.
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { parse } from 'yaml';
import { runCommandLine } from '../../../src/cli/program.js';
import { runKey } from '../../../src/store/record-keys.js';
import { openStore } from '../../../src/store/open-store.js';
import { encodeRecord } from '../../../src/store/records/record-codec.js';
import { parseRunSpec } from '../../../src/spec/spec-input.js';
import { readWorkerConfig } from '../../../src/workers/process/config.js';
import { recordsOfAllKinds } from '../../store/fixtures.js';

const outer = mkdtempSync(join(tmpdir(), 'longhaul-names-'));
const folder = join(outer, 'store');
const secret = 'what nobody may read';

const names: Record<string, string> = {
  'the folder above': '..',
  'a file above': '../outside.json',
  'a way up in the middle': 'runs/../../outside.json',
  'an absolute path': join(outer, 'outside.json'),
  'an absolute path of the system': '/etc/passwd',
  'a way up in percents': '..%2foutside.json',
  'a way up with a NUL': '../outside.json\0.json',
  'dots that look like dots': '．．／outside.json',
  'a slash that looks like one': '..∕outside.json',
  'a letter that looks like another': 'tіny',
  'a zero-width space': 'tiny\u200b',
  'a backslash': '..\\outside.json',
  'a hidden folder': '.incoming/x',
  'a very long name': 'x'.repeat(100_000),
};

let printed = '';
beforeAll(async () => {
  mkdirSync(folder);
  writeFileSync(join(outer, 'outside.json'), JSON.stringify({ secret }));
  const store = await openStore(`dir:${folder}`);
  await store.create(runKey('tiny'), await encodeRecord('run', recordsOfAllKinds().run));
});
afterAll(() => rmSync(outer, { recursive: true }));
afterEach(() => {
  vi.restoreAllMocks();
  process.exitCode = 0;
});

async function longhaul(...args: string[]): Promise<number> {
  printed = '';
  for (const stream of ['log', 'error'] as const)
    vi.spyOn(console, stream).mockImplementation(
      (...what: unknown[]) => void (printed += `${what.join(' ')}\n`),
    );
  const write = (text: string | Uint8Array) => ((printed += String(text)), true);
  vi.spyOn(process.stdout, 'write').mockImplementation(write);
  vi.spyOn(process.stderr, 'write').mockImplementation(write);
  return runCommandLine([...args, '--store', `dir:${folder}`]);
}

const commands: Record<string, (name: string) => string[]> = {
  show: (name) => ['show', name],
  'show of a folder': (name) => ['show', `${name}/`],
  'show below runs': (name) => ['show', `runs/${name}/run.json`],
  quarantine: (name) => ['quarantine', name],
  'quarantine of a run’s key': (name) => ['quarantine', `runs/${name}/steps/000001/plan.json`],
  'quarantine for a run': (name) => ['quarantine', 'runs/tiny/steps/000001/plan.json', '--run', name],
  report: (name) => ['report', name, '--output', join(folder, 'report.html')],
  transcripts: (name) => ['transcripts', name],
  audit: (name) => ['audit', name],
};

describe.each(Object.keys(commands))('%s', (command) => {
  it.each(Object.keys(names))(
    'with %s reads nothing, writes nothing, and says in one line what a valid name is',
    async (what) => {
      const before = readdirSync(outer, { recursive: true });
      expect(await longhaul(...commands[command]!(names[what]!))).toBe(1);
      expect(printed).toMatch(/^error: [^\n]+\n$/);
      expect(printed.length).toBeLessThan(1_500);
      expect(printed).not.toContain(secret);
      expect(readdirSync(outer, { recursive: true })).toEqual(before);
    },
  );
});

describe('a node', () => {
  const read = (node: string) =>
    readWorkerConfig([
      '--node',
      node,
      '--store',
      'dir:x',
      '--folder',
      resolve('x'),
      '--temporal-address',
      'h:1',
    ]);

  it.each(Object.keys(names))('cannot be named %s', (what) => {
    expect(() => read(names[what]!)).toThrow(/a node's id has 1 to 100 of the characters/);
  });
  it('can have the name of a host', () => {
    expect(read('gpu-7.rack_2.example').node).toBe('gpu-7.rack_2.example');
  });
});

describe('a spec', () => {
  const spec = (change: (spec: Record<string, Record<string, unknown>>) => void) => {
    const sound = parse(`
name: trial
project: team
model: {name: m, tokenizer: /t.json, chat_template: /c.jinja, architecture: {vocab_size: 64, hidden_size: 32,
  intermediate_size: 64, num_hidden_layers: 1, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 32}}
data: {tasks: /t.jsonl}
environments: [{env_key: tracker}]
trainer: {max_training_steps: 1}`) as Record<string, Record<string, unknown>>;
    change(sound);
    return () => parseRunSpec(sound);
  };
  const places: Record<string, (spec: Record<string, Record<string, unknown>>, name: string) => unknown> = {
    name: (one, name) => ((one as Record<string, unknown>)['name'] = name),
    project: (one, name) => ((one as Record<string, unknown>)['project'] = name),
    'model.name': (one, name) => (one['model']!['name'] = name),
    'environments[0].env_key': (one, name) =>
      ((one['environments'] as unknown as { env_key: string }[])[0]!.env_key = name),
  };
  const cases = Object.keys(places).flatMap((place) =>
    Object.keys(names).map((what) => [place, what] as const),
  );

  it.each(cases)('is refused if its %s is %s', (place, what) => {
    expect(spec((one) => void places[place]!(one, names[what]!))).toThrow(
      /must have 1 to 64 letters, digits/,
    );
  });
});
