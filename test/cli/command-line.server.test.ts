import { spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { parseRunSpec } from '../../src/spec/spec-input.js';
import { lockFolder } from '../../src/workers/process/folder-lock.js';
import { freePort } from '../../src/stack/free-port.js';
import { runKey } from '../../src/store/record-keys.js';
import { openStore } from '../../src/store/open-store.js';
import { encodeRecord } from '../../src/store/records/record-codec.js';
import { recordsOfAllKinds } from '../store/fixtures.js';
import { longhaul } from '../support/command-line.js';

const folder = mkdtempSync(join(tmpdir(), 'longhaul-cli-'));
afterAll(() => rmSync(folder, { recursive: true }));

test('bin/longhaul passes arguments, output and exit code on', () => {
  const bin = (...args: string[]) =>
    spawnSync(resolve('bin/longhaul'), args, { encoding: 'utf8', timeout: 180_000 });
  const tasks = join(folder, 'own-tasks.jsonl');
  const rows = ['train', 'held_out'].map((split) => ({
    task_key: split,
    prompt: 'a',
    env_key: 'tracker',
    split,
  }));
  writeFileSync(tasks, rows.map((row) => JSON.stringify(row)).join('\n'));
  const few = [`data.tasks=${tasks}`, 'data.eval_tasks=1', 'data.final_eval_tasks=1'];
  const spec = bin('spec', 'presets/tiny.yaml', ...few);
  expect(spec).toMatchObject({ status: 0, stderr: expect.stringMatching(/^(note: .*\n)*$/) as string });
  expect(parseRunSpec(JSON.parse(spec.stdout)).name).toBe('tiny');
  expect(bin('spec', join(folder, 'none.yaml'))).toMatchObject({ status: 1, stdout: '' });
  expect(bin('trian')).toMatchObject({
    ...{ status: 2, stdout: '' },
    stderr: expect.stringContaining("unknown command 'trian'") as string,
  });
});

describe('a command line that is not understood exits with 2 and says where to find help', () => {
  test.each<[string[], RegExp]>([
    [[], /Usage: longhaul/],
    [['trian'], /unknown command 'trian'\n\(Did you mean train\?\)/],
    [['down'], /unknown command 'down': a stack is stopped by Ctrl-C .* or by `kill N`/],
    [['start', 'a.yaml'], /unknown command 'start': `longhaul up` starts a stack/],
    [['ls'], /unknown command 'ls': `longhaul runs` lists the runs/],
    [['trian', '--help'], /unknown command 'trian'\n\(Did you mean train\?\)/],
    [['up', '--temporal-port', '99999'], /'99999' is invalid. It takes a whole number from 1 to 65535/],
    [['up', '--store', 'ftp://x'], /'ftp:\/\/x' is invalid. It takes dir:\/path or s3:\/\/bucket\/prefix/],
    [['spec'], /missing required argument 'spec': .*--run RUN\nsee: longhaul spec --help/],
    [['train', 'a.yaml', '--run', 'a'], /a spec file and --run are two specs: give one of them/],
    [
      ['runs', '--limit', 'many'],
      /'--limit <n>' argument 'many' is invalid. It takes a whole number from 1 up/,
    ],
    [['spec', 'a', '--jsno'], /unknown option '--jsno'\n\(Did you mean --json\?\)/],
  ])('%j', async (args, message) => {
    const { code, errors } = await longhaul(args);
    expect(errors).toMatch(message);
    expect(code).toBe(2);
  });

  test('but asking for help is no error', async () => {
    expect(await longhaul(['--help'])).toMatchObject({
      code: 0,
      output: expect.stringContaining('doctor') as string,
    });
    expect(await longhaul(['--version'])).toMatchObject({
      code: 0,
      output: expect.stringMatching(/^\d+\.\d+\.\d+\n$/) as string,
    });
  });
});

describe('longhaul spec', () => {
  test('exits with 1 and gives the reason, as text or as JSON', async () => {
    const missing = join(folder, 'none.yaml');
    expect(await longhaul(['spec', missing])).toMatchObject({
      code: 1,
      errors: expect.stringContaining('there is no such file') as string,
    });
    const { code, output } = await longhaul(['spec', missing, '--json']);
    expect(code).toBe(1);
    expect(JSON.parse(output)).toMatchObject({ error: { name: 'InvalidSpec' } });
  });
});

describe('a broken task file', () => {
  const spec = join(folder, 'broken.yaml');
  beforeAll(() => {
    const task = { task_key: 'a', prompt: 'b', env_key: 'nowhere' };
    writeFileSync(join(folder, 'tasks.jsonl'), `${JSON.stringify(task)}\n{"task_key": "b", "promt"\n`);
    const { data: _data, ...rest } = parse(readFileSync('presets/tiny.yaml', 'utf8')) as Record<
      string,
      object
    >;
    const model = {
      ...rest['model'],
      tokenizer: resolve('presets/tokenizers/small/tokenizer.json'),
      chat_template: resolve('presets/tokenizers/small/chat_template.jinja'),
    };
    const data = { tasks: 'tasks.jsonl', eval_tasks: 1, final_eval_tasks: 1 };
    writeFileSync(spec, JSON.stringify({ ...rest, model, warm_start: [], data }));
  });

  test('is refused by spec and by doctor --spec, which name the line', async () => {
    expect(await longhaul(['spec', spec])).toMatchObject({
      ...{ code: 1, output: '' },
      errors: expect.stringMatching(/tasks\.jsonl is not usable:\n.*line 2: not JSON/) as string,
    });
    const { code, output } = await longhaul([
      'doctor',
      '--json',
      '--spec',
      spec,
      '--folder',
      join(folder, 'mistyped'),
    ]);
    const checks = JSON.parse(output) as { check: string; ok: boolean; detail: string }[];
    expect(checks.find(({ check }) => check === 'spec')).toMatchObject({
      ok: false,
      detail: expect.stringContaining('line 2: not JSON') as string,
    });
    expect(code).toBe(1);
  });

  test('is also refused if its tasks belong to no environment of the spec', async () => {
    const task = { task_key: 'a', prompt: 'b', env_key: 'nowhere' };
    writeFileSync(join(folder, 'tasks.jsonl'), `${JSON.stringify(task)}\n`);
    const { code, errors } = await longhaul(['spec', spec]);
    expect(errors).toContain('tasks name the environment "nowhere", which is not listed');
    expect(errors).toContain('the spec asks for 1 evaluation task, but the data has only 0 held-out tasks');
    expect(code).toBe(1);
  });
});

describe('longhaul show', () => {
  test('says that a key does not exist', async () => {
    mkdirSync(join(folder, 'store'), { recursive: true });
    const { code, errors } = await longhaul([
      'show',
      'runs/x/run.json',
      '--store',
      `dir:${join(folder, 'store')}`,
    ]);
    expect(code).toBe(1);
    expect(errors).toMatch(/there is no runs\/x\/run\.json in dir:/);
  });
});

describe('--folder', () => {
  test('selects the store of the stack in that folder, for commands that read a store', async () => {
    const stack = join(folder, 'stack');
    mkdirSync(join(stack, 'store'), { recursive: true });
    for (const args of [
      ['report', 'x'],
      ['audit', 'x'],
      ['gc', 'x'],
      ['transcripts', 'x'],
      ['show', 'x'],
    ])
      expect((await longhaul([...args, '--folder', stack])).errors).toContain(`dir:${join(stack, 'store')}`);
    mkdirSync(join(folder, 'elsewhere'));
    writeFileSync(join(stack, 'stack.json'), JSON.stringify({ store: `dir:${join(folder, 'elsewhere')}` }));
    expect((await longhaul(['report', 'x', '--folder', stack])).errors).toContain(
      `dir:${join(folder, 'elsewhere')}`,
    );
  });

  test.each(['status', 'cancel', 'stop'])(
    'without a stack is an error of %s, which does not use another server instead',
    async (verb) => {
      const none = join(folder, 'mistyped');
      const { code, errors } = await longhaul([verb, 'x', '--folder', none], {
        env: { TEMPORAL_ADDRESS: undefined },
      });
      expect(errors).toMatch(/^error: no stack runs in [^\n]*mistyped: correct --folder, or [^\n]*\n$/);
      expect(errors).toContain(`longhaul up --folder ${none}`);
      expect(code).toBe(1);
    },
  );

  test('without a stack is an error of status, which names what still reads the run’s records', async () => {
    const stopped = join(folder, 'stopped');
    const stored = await openStore(`dir:${join(stopped, '.longhaul', 'store')}`);
    const records = recordsOfAllKinds();
    await stored.create(
      runKey('mine'),
      await encodeRecord('run', { ...records.run, run: 'mine', name: 'mine' }),
    );
    const nobody = { env: { TEMPORAL_ADDRESS: undefined, XDG_CONFIG_HOME: folder } };
    const places: [string[], string, string][] = [
      [[], stopped, ''],
      [['--folder', join(stopped, '.longhaul')], folder, ` --folder ${join(stopped, '.longhaul')}`],
    ];
    for (const [flags, cwd, where] of places) {
      const { code, errors } = await longhaul(['status', 'mine', ...flags], { ...nobody, cwd });
      expect(errors).toMatch(/^error: no stack runs in .*`longhaul up/);
      expect(errors).toContain(`need no server: longhaul report mine${where}, longhaul audit mine${where}\n`);
      expect(code).toBe(1);
      expect((await longhaul(['status', 'other', ...flags], { ...nobody, cwd })).errors).not.toContain(
        'records of',
      );
    }
  });

  test('that cannot be read is not reported as empty', async () => {
    const loop = join(folder, 'loop');
    symlinkSync(loop, loop);
    expect((await longhaul(['status', 'x', '--folder', loop])).errors).toMatch(
      /loop cannot be read \(ELOOP\)/,
    );
    expect((await longhaul(['report', 'x', '--store', `dir:${loop}`])).errors).toMatch(
      /cannot be read \(ELOOP\)/,
    );
  });

  test('is ignored, with a message, if TEMPORAL_ADDRESS is set', async () => {
    const stack = join(folder, 'running');
    const lock = lockFolder(stack, 'a test');
    writeFileSync(join(stack, 'stack.json'), JSON.stringify({ temporal: '127.0.0.1:1', store: 'dir:x' }));
    const { errors } = await longhaul(['status', 'x', '--folder', stack], {
      env: { TEMPORAL_ADDRESS: '127.0.0.1:2' },
    });
    lock.release();
    expect(errors).toContain(
      `TEMPORAL_ADDRESS names 127.0.0.1:2: the command uses that server, not the stack in ${stack}\n`,
    );
    expect(errors).toContain('no Temporal server answers at 127.0.0.1:2');
  });

  test.each(['up', 'quickstart'])(
    'is refused by %s if its stack runs already, with commands that use that stack',
    async (verb) => {
      const stack = join(folder, 'used');
      const lock = lockFolder(stack, 'a test');
      writeFileSync(join(stack, 'stack.json'), JSON.stringify({ ui: 'http://127.0.0.1:8234' }));
      const { code, errors } = await longhaul([verb, '--folder', stack]);
      lock.release();
      expect(errors).toContain(`is in use by process ${process.pid} (a test)`);
      expect(errors).toContain(
        `Use that stack: longhaul runs --folder ${stack}, longhaul train SPEC --folder ${stack}, or its Temporal UI http://127.0.0.1:8234`,
      );
      expect(errors).toContain(`Or stop it: Ctrl-C in its terminal, or kill ${process.pid}`);
      expect(code).toBe(1);
    },
  );

  test.each(['up', 'quickstart'])('is refused by %s in one line if it is a file', async (verb) => {
    const file = join(process.cwd(), 'package.json');
    const { code, errors } = await longhaul([verb, '--folder', file]);
    expect(errors).toBe(`error: ${file} is a file, but a stack needs a folder: name one with --folder\n`);
    expect(code).toBe(1);
  });

  test.each([
    { what: 'is a folder of the kernel', below: '/proc/longhaul/x' },
    { what: 'is a file', below: join(process.cwd(), 'package.json', 'x') },
  ])('is refused by up at once if its parent $what', async ({ below }) => {
    const { code, errors } = await longhaul(['up', '--folder', below]);
    expect(errors).toMatch(/^error: the folder .* cannot be created: .*choose another one with --folder\n/m);
    expect(code).toBe(1);
  });
});

describe('longhaul runs', () => {
  test('says that the folder’s store cannot be read: without the store, rewound runs look like any other', async () => {
    const cwd = join(folder, 'unreadable');
    mkdirSync(join(cwd, '.longhaul'), { recursive: true });
    symlinkSync('store', join(cwd, '.longhaul', 'store'));
    expect((await longhaul(['runs', '--temporal-address', '127.0.0.1:1'], { cwd })).errors).toMatch(
      /^the store at dir:\.\/\.longhaul\/store cannot be read \(ELOOP\): /,
    );
  });
});

describe('longhaul set', () => {
  test.each<[string[], RegExp]>([
    [['lr=1e-4', 'lr=2e-4'], /lr is given twice/],
    [['lr'], /"lr" is not understood: give NAME=NUMBER/],
  ])('%j is refused before Temporal is asked', async (values, message) => {
    expect((await longhaul(['set', 'x', ...values, '--temporal-address', '127.0.0.1:1'])).errors).toMatch(
      message,
    );
  });
});

describe('longhaul doctor', () => {
  interface Check {
    check: string;
    ok: boolean;
    detail: string;
  }
  // The answer must come at once: the folder has no stack. (For a server that does not answer, the command would wait.)
  const nowhere = ['--folder', join(folder, 'mistyped')];

  async function checks(args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<Map<string, Check>> {
    const { code, output } = await longhaul(['doctor', '--json', ...args], { env });
    expect(code).toBe(1);
    return new Map((JSON.parse(output) as Check[]).map((one) => [one.check, one]));
  }

  test('says which parts work and which do not', async () => {
    const port = await freePort();
    const notTemporal = createServer((socket) => socket.destroy()).listen(port, '127.0.0.1');
    const temporal = ['--folder', folder, '--temporal-address', `127.0.0.1:${port}`];
    const found = await checks([...temporal, '--store', `dir:${join(folder, 'store')}`]);
    notTemporal.close();
    expect(found.get('engine')).toMatchObject({
      ok: true,
      detail: expect.stringContaining('numerics cpu/') as string,
    });
    expect(found.get('store')).toMatchObject({
      ok: true,
      detail: expect.stringContaining('create-only') as string,
    });
    expect(found.get('temporal')).toMatchObject({
      ok: false,
      detail: expect.stringContaining('longhaul up') as string,
    });
  });

  test('creates no store at a mistyped address', async () => {
    const mistyped = join(folder, 'stoer');
    for (const store of [`dir:${mistyped}`, mistyped])
      expect((await checks([...nowhere, '--store', store])).get('store')).toMatchObject({
        ok: false,
        detail: expect.stringContaining(`there is no store at ${store}: correct the address`) as string,
      });
    expect(existsSync(mistyped)).toBe(false);
  });

  test('runs the other checks if the folder has no stack', async () => {
    const found = await checks(nowhere);
    expect(found.get('engine')).toMatchObject({ ok: true });
    expect(found.get('temporal')).toMatchObject({
      ok: false,
      detail: expect.stringContaining('no stack runs in') as string,
    });
  });

  test('says how to fix a missing engine and an invalid store address', async () => {
    const found = await checks([...nowhere, '--store', 'ftp:/somewhere'], {
      LONGHAUL_ENGINE: join(folder, 'no-engine'),
    });
    expect(found.get('engine')).toMatchObject({
      ok: false,
      detail: expect.stringContaining('no-engine') as string,
    });
    expect(found.get('store')).toMatchObject({
      ok: false,
      detail: expect.stringContaining('s3://bucket/prefix') as string,
    });
  });
});
