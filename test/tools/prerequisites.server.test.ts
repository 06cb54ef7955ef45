// Sets up a fresh checkout on a machine whose commands the test chooses: the set-up reports a missing prerequisite at once, not minutes
// later.
import { execFile } from 'node:child_process';
import {
  accessSync,
  chmodSync,
  cpSync,
  mkdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { delimiter, join } from 'node:path';
import { beforeEach, describe, expect, test } from 'vitest';
import { ownFolder } from '../support/scratch-folder.js';

let folder: string;
let checkout: string;
let commands: string;

beforeEach(() => {
  folder = ownFolder();
  checkout = join(folder, 'checkout');
  commands = join(folder, 'bin');
  mkdirSync(commands);
  cpSync('tools', join(checkout, 'tools'), { recursive: true });
  cpSync('package-lock.json', join(checkout, 'package-lock.json'));
  // Links all prerequisites except Go.
  link('sh');
  command('c++', '');
  command('cmake', 'echo "cmake version 3.20.0"');
  command('make', '');
  command('npm', '');
  command('python3', 'echo "Python 3.11.7"');
});

function pathOf(name: string): string {
  const paths = (process.env['PATH'] ?? '').split(delimiter).map((place) => join(place, name));
  for (const path of paths) {
    try {
      accessSync(path);
      return path;
    } catch {
      // The command is not in this folder.
    }
  }
  throw new Error(`this test needs ${name} on the PATH`);
}

/** Links this machine's own command. */
function link(name: string): void {
  rmSync(join(commands, name), { force: true });
  symlinkSync(pathOf(name), join(commands, name));
}

/** Creates a command of a version that this machine may not have. */
function command(name: string, script: string): void {
  rmSync(join(commands, name), { force: true });
  writeFileSync(join(commands, name), `#!/bin/sh\n${script}\n`);
  chmodSync(join(commands, name), 0o755);
}

function without(name: string): void {
  rmSync(join(commands, name));
}

function goOf(version: string): void {
  command('go', `if [ "$2" = GOVERSION ]; then echo go${version}; else echo local; fi`);
}

/** Runs the set-up. Nothing can be downloaded unless a proxy's port is given. */
function setUp(
  args: string[],
  proxyPort = 1,
  more: Record<string, string> = {},
): Promise<{ code: number; said: string }> {
  const env = {
    PATH: commands,
    LONGHAUL_CACHE: join(folder, 'cache'),
    HTTPS_PROXY: `http://127.0.0.1:${proxyPort}`,
    // Also on a machine with a GPU.
    LONGHAUL_CUDA: '0',
    ...more,
  };
  const script = join(checkout, 'tools/setup.mjs');
  return new Promise((resolve) => {
    execFile(process.execPath, [script, ...args], { env, timeout: 240_000 }, (error, stdout, stderr) =>
      resolve({ code: error === null ? 0 : Number(error.code ?? -1), said: stdout + stderr }),
    );
  });
}

const check = (...more: string[]) => setUp(['--only', 'prerequisites', ...more]);

describe('Go', () => {
  test('is required if the Temporal server can be neither found nor downloaded, and the message lists every way to fix it', async () => {
    const { code, said } = await setUp([]);
    expect(code).toBe(1);
    expect(said).toContain('go not found');
    expect(said).toContain('https://go.dev/dl');
    expect(said).toContain('a `temporal` command on the PATH');
    expect(said).not.toContain('  dependencies ');
  });

  test('must not be older than the first version that downloads newer versions', async () => {
    goOf('1.19.8');
    expect(await check()).toMatchObject({ code: 1, said: expect.stringContaining('Go 1.19.8 is too old') });
    goOf('1.21.0');
    expect(await check()).toMatchObject({ code: 0 });
  });

  test('is not required if a `temporal` command exists', async () => {
    command('temporal', '');
    expect(await check()).toMatchObject({ code: 0 });
  });

  test('is still required for the tests, because their S3 server is built', async () => {
    command('temporal', '');
    const { code, said } = await check('--tests');
    expect(code).toBe(1);
    expect(said).toContain('a `versitygw` command on the PATH');
  });

  test('is not required if the download host can be reached', async () => {
    const proxy = createServer().listen(0, '127.0.0.1');
    await new Promise((resolve) => proxy.once('listening', resolve));
    const { port } = proxy.address() as AddressInfo;
    try {
      expect(await setUp(['--only', 'prerequisites'], port)).toMatchObject({ code: 0 });
    } finally {
      proxy.close();
    }
  });

  test('may download the version that the module requires, whatever its distribution has set', async () => {
    command(
      'go',
      [
        'case "$1 $2" in',
        '  "env GOVERSION") echo go1.21.0 ;;',
        '  "env GOTOOLCHAIN") echo local ;;',
        '  "list "*) echo an/import/path ;;',
        '  "build "*) while [ "$1" != -o ]; do shift; done; echo "$GOTOOLCHAIN" > "$2" ;;',
        'esac',
      ].join('\n'),
    );
    expect(await setUp(['--only', 'temporal'])).toMatchObject({ code: 0 });
    const built = readFileSync(join(checkout, 'dist/temporal-path'), 'utf8').trim();
    expect(readFileSync(built, 'utf8')).toBe('auto\n');
  });
});

describe('the other prerequisites', () => {
  beforeEach(() => goOf('1.21.0'));

  test('are accepted as this machine has them', async () => {
    for (const name of ['c++', 'as', 'ld', 'cmake', 'make']) link(name);
    expect(await check()).toMatchObject({ code: 0 });
  });

  test('include cmake 3.20', async () => {
    command('cmake', 'echo "cmake version 3.16.3"');
    expect(await check()).toMatchObject({
      code: 1,
      said: expect.stringContaining('cmake 3.16.3 is too old'),
    });
  });

  test('include a compiler that builds C++20', async () => {
    command('c++', 'echo "c++: error: unrecognized command line option ‘-std=c++20’" >&2; exit 1');
    const { code, said } = await check();
    expect(code).toBe(1);
    expect(said).toContain('unrecognized command line option');
    expect(said).toContain('g++ ≥ 11 or clang ≥ 14');
  });

  test('include Python if the addon cannot be downloaded', async () => {
    without('python3');
    expect(await check()).toMatchObject({ code: 1, said: expect.stringContaining('Python ≥ 3.6 not found') });
  });

  test('are all named at once', async () => {
    for (const name of ['c++', 'cmake', 'make', 'npm', 'go']) without(name);
    const { said } = await check();
    for (const missing of ['No C++ compiler', 'cmake not', 'Neither ninja nor make', 'npm not', 'go not'])
      expect(said).toContain(missing);
  });
});

describe('nvcc', () => {
  const cuda = (value: string) => setUp(['--only', 'prerequisites'], 1, { LONGHAUL_CUDA: value });

  beforeEach(() => {
    command('temporal', '');
    command('python3', `case "$*" in *pip*) exit 1 ;; *) echo 'Python 3.11.7' ;; esac`);
  });

  test('is not required unless the engine is to be built for GPUs', async () => {
    expect(await cuda('0')).toMatchObject({ code: 0 });
    expect(await cuda('1')).toMatchObject({
      code: 1,
      said: expect.stringMatching(/nvcc not found[^]*python3-pip[^]*set LONGHAUL_CUDA=0/),
    });
  });

  test('of the PATH must compile C++20 with this compiler; pip can install it in its place', async () => {
    command('nvcc', 'echo "Cuda compilation tools, release 11.8, V11.8.89"');
    expect(await cuda('1')).toMatchObject({ code: 1 });
    command('nvcc', `case "$*" in *--version*) echo 'release 12.0' ;; *) exit 1 ;; esac`);
    expect(await cuda('1')).toMatchObject({ code: 1 });
    command('nvcc', 'echo "Cuda compilation tools, release 12.4, V12.4.131"');
    expect(await cuda('1')).toMatchObject({ code: 0 });
    without('nvcc');
    command('python3', 'echo "Python 3.11.7"');
    expect(await cuda('1')).toMatchObject({ code: 0 });
  });
});
