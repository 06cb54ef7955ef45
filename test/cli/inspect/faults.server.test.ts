// If something is missing that a command needs, the command gives one clear error within seconds and exits with 1.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { freePort } from '../../../src/stack/free-port.js';
import { type Answer, longhaul as commandLine } from '../../support/command-line.js';
import { spawnEnvironmentServer } from '../../support/servers/environment-process.js';
import { startS3Server, type S3Server } from '../../support/servers/s3-server.js';

const folder = mkdtempSync(join(tmpdir(), 'longhaul-cli-faults-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

interface Ended {
  code: number | null;
  output: string;
  errors: string;
  seconds: number;
}

async function ended(child: ChildProcess, deadlineMs = 60_000): Promise<Ended> {
  const started = performance.now();
  let [output, errors] = ['', ''];
  child.stdout?.on('data', (piece: Buffer) => (output += piece.toString()));
  child.stderr?.on('data', (piece: Buffer) => (errors += piece.toString()));
  const timer = setTimeout(() => child.kill('SIGKILL'), deadlineMs);
  const [code] = (await once(child, 'close')) as [number | null];
  clearTimeout(timer);
  return { code, output, errors, seconds: (performance.now() - started) / 1000 };
}

const longhaul = (args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<Answer> =>
  commandLine(args, { cwd: folder, env });

const oneLine = /^error: [^\n]+\n$/;

describe('a run that does not exist', () => {
  beforeAll(() => mkdirSync(join(folder, 'store')));

  it.each([
    ['report', 'NOSUCH'],
    ['transcripts', 'NOSUCH'],
    ['show', 'NOSUCH'],
    ['show', 'runs/NOSUCH/run.json'],
  ])('is reported in one line by %s %s', async (...args) => {
    const { code, errors } = await longhaul([...args, '--store', `dir:${join(folder, 'store')}`]);
    expect(errors).toMatch(oneLine);
    expect(errors).toContain('NOSUCH');
    expect(errors).toContain(`dir:${join(folder, 'store')}`);
    expect(code).toBe(1);
  });

  it.each(['report', 'transcripts', 'show', 'audit'])(
    'is an error of %s in a folder without a store, and creates no store',
    async (command) => {
      const { code, errors } = await longhaul([command, 'runs', '--store', 'dir:./elsewhere/store']);
      expect(errors).toMatch(/^error: there is no store at dir:\.\/elsewhere\/store: .*--store/);
      expect(existsSync(join(folder, 'elsewhere'))).toBe(false);
      expect(code).toBe(1);
    },
  );

  it('an invalid name is reported as such', async () => {
    const { code, errors } = await longhaul(['report', '../etc', '--store', `dir:${join(folder, 'store')}`]);
    expect(errors).toMatch(oneLine);
    expect(code).toBe(1);
  });
});

describe('a Temporal server that does not answer', () => {
  const spec = resolve('presets/tiny.yaml');

  it.concurrent.each([['train', spec], ['status', 'tiny'], ['pause', 'tiny'], ['runs']])(
    'is reported in one line by %s %s',
    async (...args) => {
      const address = `127.0.0.1:${await freePort()}`;
      const { code, errors, seconds } = await ended(
        spawn(resolve('bin/longhaul'), [...args, '--temporal-address', address], { cwd: folder }),
      );
      expect(errors).toMatch(oneLine);
      expect(errors).toContain(`no Temporal server answers at ${address}`);
      expect(errors).toContain('longhaul up');
      expect(code).toBe(1);
      // Five seconds of trying, plus the start of a process on a busy machine.
      expect(seconds).toBeLessThan(45);
    },
  );
});

describe('a port that is taken', () => {
  let taken: Server;
  let port: number;
  beforeAll(async () => {
    port = await freePort();
    taken = createServer().listen(port, '127.0.0.1');
    await once(taken, 'listening');
  });
  afterAll(() => taken.close());

  it.each(['--temporal-port', '--ui-port'])(
    'is named by up %s, and the error says how to fix it',
    async (flag) => {
      const { code, errors } = await longhaul(['up', '--folder', join(folder, 'stack'), flag, String(port)]);
      expect(errors).toContain(`port ${port} for the Temporal`);
      expect(errors).toContain('omit the option to use a free port');
      expect(code).toBe(1);
    },
  );

  it('is named by the environment server', async () => {
    const child = spawnEnvironmentServer(['--port', String(port)], { LONGHAUL_GRADING_TOKEN: 'x' });
    const { code, errors } = await ended(child);
    expect(errors).toContain(String(port));
    expect(errors).toMatch(/taken|in use/);
    expect(code).toBe(1);
  });
});

describe('a missing engine', () => {
  it('keeps the stack from starting; the error names the command that builds it', async () => {
    const { code, errors } = await longhaul(['up', '--folder', join(folder, 'stack')], {
      LONGHAUL_ENGINE: join(folder, 'no-engine'),
    });
    expect(errors).toContain(`there is no engine at ${join(folder, 'no-engine')}`);
    expect(errors).toContain('npm run build:native');
    expect(code).toBe(1);
  });
});

describe('a store without create-only puts', () => {
  let server: S3Server;
  beforeAll(async () => {
    server = await startS3Server({ createOnly: false });
  });
  afterAll(() => server.stop());
  const refusal = /is not fit to hold records: .*create-only puts/;

  it('is refused by doctor, and the error says what to use instead', async () => {
    const args = ['doctor', '--json', '--store', server.address('unfit'), '--folder', folder];
    const { code, output } = await longhaul(args);
    const checks = JSON.parse(output) as { check: string; ok: boolean; detail: string }[];
    const store = checks.find(({ check }) => check === 'store');
    expect(store).toMatchObject({ ok: false, detail: expect.stringMatching(refusal) as string });
    expect(store?.detail).toContain('If-None-Match');
    expect(code).toBe(1);
  });

  it.each(['orchestrator', 'node'])('is refused by the %s worker before it takes any work', async (name) => {
    const args = ['--store', server.address('unfit'), '--folder', join(folder, name), '--node', 'n'];
    const temporal = ['--temporal-address', `127.0.0.1:${await freePort()}`, '--engine', process.execPath];
    const main = resolve(`dist/workers/${name}-main.js`);
    const child = spawn(process.execPath, [main, ...args, ...temporal], { cwd: folder });
    const { code, output, errors } = await ended(child);
    expect(output + errors).toMatch(refusal);
    expect(code).not.toBe(0);
  });
});

describe('a spec with several mistakes', () => {
  it('is refused by train, which lists all mistakes before it asks Temporal', async () => {
    const spec = join(folder, 'spec.yaml');
    writeFileSync(spec, 'name: x\ntrainer:\n  learnin_rate: 1\ngenerator:\n  max_turn: 2\n');
    const address = `127.0.0.1:${await freePort()}`;
    const { code, errors } = await longhaul(['train', spec, '--temporal-address', address]);
    expect(errors).toContain('max_turns');
    expect(errors).toContain('learnin_rate');
    expect(errors).not.toContain('no Temporal server');
    expect(code).toBe(1);
  });
});
