// The commands that a person runs first in a checkout that is not set up.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { Command } from 'commander';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { register } from '../../src/cli/train/quickstart-command.js';
import { ownFolder } from '../support/scratch-folder.js';

let checkout: string;

beforeEach(() => {
  checkout = ownFolder();
  for (const name of ['bin', 'tools']) cpSync(name, join(checkout, name), { recursive: true });
});

function run(file: string, ...args: string[]): { status: number | null; stdout: string; stderr: string } {
  return spawnSync(file, args, { cwd: checkout, encoding: 'utf8', timeout: 240_000 });
}

test('bin/longhaul names the script that sets up the checkout', () => {
  const { status, stderr } = run(process.execPath, 'bin/longhaul', 'up');
  expect(status).toBe(1);
  const script = /npm run (\S+?)`/.exec(stderr)?.[1] ?? '';
  const { scripts } = JSON.parse(readFileSync('package.json', 'utf8')) as { scripts: Record<string, string> };
  expect(scripts[script]).toBe('node tools/setup.mjs');
});

describe('npm run quickstart', () => {
  test('refuses a mistyped flag before it sets anything up', () => {
    const { status, stdout, stderr } = run('bash', 'tools/quickstart.sh', '--sed', '2');
    expect(status).toBe(2);
    expect(stderr).toContain("'--sed'");
    expect(stderr).toContain('--seed');
    expect(stdout + stderr).not.toContain('Setting up');
  });

  test('answers --help before it sets anything up', () => {
    const { status, stdout, stderr } = run('bash', 'tools/quickstart.sh', '--help');
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    for (const flag of ['--seed', '--folder', '--keep-open', '--json']) expect(stdout).toContain(flag);
  });

  test.each(['x', '1.5', '-1', ''])('refuses the seed "%s" before it sets anything up', (seed) => {
    const { status, stdout, stderr } = run('bash', 'tools/quickstart.sh', `--seed=${seed}`);
    expect(status).toBe(2);
    expect(stderr).toContain('--seed takes a whole number');
    expect(stdout + stderr).not.toContain('Setting up');
  });

  test('accepts the same flags as the command', () => {
    const program = new Command();
    register(program);
    const flags = program.commands.flatMap(({ options }) => options.map(({ long }) => long ?? ''));
    const { stderr } = run(process.execPath, 'tools/quickstart-flags.mjs', '--mistyped');
    expect([...stderr.matchAll(/--[a-z-]+(?=[ ,.])/g)].map(([flag]) => flag).sort()).toEqual(
      [...flags, '--help'].sort(),
    );
  });

  test('leaves the check of other values to the command', () => {
    const args = ['--seed', '2', '--folder=here', '--keep-open', '--json'];
    expect(run(process.execPath, 'tools/quickstart-flags.mjs', ...args)).toMatchObject({ status: 0 });
  });
});

describe('npm test', () => {
  test('refuses a mistyped flag before it sets anything up', () => {
    const { status, stdout, stderr } = run('bash', 'tools/test.sh', '--hlep');
    expect(status).toBe(2);
    expect(stderr).toContain("'--hlep'");
    expect(stderr).toContain('--all');
    expect(stdout + stderr).not.toContain('Setting up');
  });

  test('answers --help before it sets anything up', () => {
    const { status, stdout, stderr } = run('bash', 'tools/test.sh', '--help');
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    expect(stdout).toContain('--testNamePattern');
  });

  test.each([
    { args: ['--all', 'test/store'] },
    { args: ['-t', 'a name', '-u'] },
    { args: ['--project', 'pure', '--reporter=dot'] },
  ])('accepts $args', ({ args }) => {
    expect(run(process.execPath, 'tools/test-flags.mjs', ...args)).toMatchObject({ status: 0, stderr: '' });
  });

  test('accepts only flags that vitest knows', () => {
    const { stdout } = run(process.execPath, 'tools/test-flags.mjs', '--help');
    const flags = /go to vitest: (.*);/.exec(stdout)?.[1]?.split(', ') ?? [];
    expect(flags).toContain('--bail');
    const known = spawnSync(process.execPath, [resolve('node_modules/vitest/vitest.mjs'), 'run', '--help'], {
      encoding: 'utf8',
    });
    for (const flag of flags) expect(known.stdout).toMatch(new RegExp(`^ +(-., )?${flag} `, 'm'));
  });
});

describe('npm run setup', () => {
  test('answers --help', () => {
    const { status, stdout, stderr } = run(process.execPath, 'tools/setup.mjs', '--help');
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    expect(stdout).toContain('--only STEP');
  });

  test('refuses a mistyped flag and lists the valid flags, without a stack trace', () => {
    const { status, stdout, stderr } = run(process.execPath, 'tools/setup.mjs', '--test');
    expect(status).toBe(2);
    expect(stderr).toContain("'--test'");
    expect(stderr).toContain('--tests');
    expect(stderr).not.toContain('node:internal');
    expect(stdout).toBe('');
  });
});

describe('a set-up that is ended in a long step', () => {
  /** Its long step starts a process, and writes the id of that process to the file `started`. */
  const setUp = `import { runLong } from './steps/command.mjs';
await runLong('bash', ['-c', 'sleep 300 & echo $! > started.new; mv started.new started; wait'], { label: 'long' });`;

  const runs = (pid: string): boolean =>
    existsSync(`/proc/${pid}/stat`) && !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));

  test.each([
    { signal: 'SIGTERM', code: 143, file: 'bash', args: ['tools/bench.sh'] },
    { signal: 'SIGINT', code: 130, file: 'bash', args: ['tools/bench.sh'] },
    { signal: 'SIGHUP', code: 129, file: process.execPath, args: ['tools/setup.mjs'] },
  ] as const)('leaves no process behind after $signal to $args', async ({ signal, code, file, args }) => {
    writeFileSync(join(checkout, 'tools/setup.mjs'), setUp);
    const env = { ...process.env, LONGHAUL_CACHE: join(checkout, 'cache') };
    const child = spawn(file, args, { cwd: checkout, env, stdio: 'ignore' });
    const ended = once(child, 'exit');
    await expect.poll(() => existsSync(join(checkout, 'started'))).toBe(true);
    const started = readFileSync(join(checkout, 'started'), 'utf8').trim();
    expect(runs(started)).toBe(true);
    child.kill(signal);
    expect(await ended).toEqual([code, null]);
    await expect.poll(() => runs(started)).toBe(false);
  });
});

describe('a command of the set-up', () => {
  /** Runs a shell script as a step that may be silent for 2 s, and returns how it ended. */
  function step(script: string) {
    const options = `{ label: 'build', silenceMs: 2_000, again: 'Start it again: it continues.' }`;
    const text = `import { runLong } from './steps/command.mjs';
await runLong('bash', ['-c', ${JSON.stringify(script)}], ${options}).catch(({ message }) => { console.error(message); process.exit(1); });`;
    writeFileSync(join(checkout, 'tools/step.mjs'), text);
    return spawnSync(process.execPath, ['tools/step.mjs'], {
      ...{
        cwd: checkout,
        encoding: 'utf8',
        env: { ...process.env, LONGHAUL_CACHE: join(checkout, 'cache') },
      },
    });
  }

  test('may take as long as it needs while it prints', () => {
    expect(step('for i in 1 2 3 4 5 6; do echo $i; sleep 0.5; done')).toMatchObject({
      status: 0,
      stderr: '',
    });
  });

  test('is ended when it is silent, and the error says the limit and what a second run does', () => {
    const { status, stderr } = step('echo [119/183]; sleep 300');
    expect(status).toBe(1);
    expect(stderr).toContain('build: bash printed nothing for 2 s and was ended.');
    expect(stderr).toContain('| [119/183]');
    expect(stderr).toContain('Start it again: it continues.');
  });

  test('that fails by itself is not said to have been silent', () => {
    const { stderr } = step('echo broken; exit 3');
    expect(stderr).toContain('build: bash ended with 3.');
    expect(stderr).not.toContain('Start it again');
  });
});

describe('a long step of the set-up', () => {
  beforeEach(() => vi.useFakeTimers());
  afterEach(() => vi.useRealTimers());
  /** Returns what the step writes in two minutes. */
  async function writtenTo(output: { isTTY?: boolean; columns?: number }): Promise<string[]> {
    const { showLife } = (await import(
      new URL('../../tools/steps/sign-of-life.mjs', import.meta.url).href
    )) as {
      showLife: (label: string, latest: () => string | null, output: unknown) => () => void;
    };
    const written: string[] = [];
    let now: string | null = null;
    const write = (text: string): void => void written.push(text);
    const end = showLife('engine build', () => now, { ...output, write });
    vi.advanceTimersByTime(60_000);
    now = 'the third of three files';
    vi.advanceTimersByTime(60_000);
    end();
    return written;
  }

  test('gives a log a line every 30 s', async () => {
    expect(await writtenTo({})).toEqual([
      '    engine build: 30 s\n',
      '    engine build: 60 s\n',
      '    engine build: 90 s … the third of three files\n',
      '    engine build: 120 s … the third of three files\n',
    ]);
  });

  test('gives a terminal one changing line, which fits the window and disappears at the end', async () => {
    const written = await writtenTo({ isTTY: true, columns: 30 });
    expect(written.join('')).not.toContain('\n');
    expect(written).toContain('\r\u001b[2K    engine build: 90 s … the ');
    expect(written.at(-1)).toBe('\r\u001b[2K');
  });
});
