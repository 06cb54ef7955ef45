// No command changes a Temporal server that nobody has named. If the server belongs to a stack folder, it must be that stack's own.
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { Command } from 'commander';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { modules } from '../../src/cli/program.js';
import { type FolderLock, lockFolder } from '../../src/workers/process/folder-lock.js';
import { nameServer, newStackId, stackIdentity, stackOfServer } from '../../src/stack/stack-identity.js';
import { connectClient } from '../../src/workers/temporal/temporal-connection.js';
import { plainTemporalConfig } from '../../src/workers/process/config.js';
import { type Answer, longhaul as commandLine } from '../support/command-line.js';
import { startTemporal, type TestTemporal } from '../support/servers/temporal-server.js';

/** Verbs that change nothing on a server. The test treats every other verb with `--temporal-address` as a verb that writes. */
const readingVerbs = ['data show', 'doctor', 'nodes', 'runs', 'status', 'sweeps list'];

const registered = new Command('longhaul');
for (const [, load] of modules) (await load()).register(registered);
const verbs = leaves(registered)
  .filter(({ command }) => command.options.some(({ long }) => long === '--temporal-address'))
  .map(({ path, command }) => ({ verb: path, args: [...path.split(' '), ...argumentsOf(command)] }));
const writingVerbs = verbs.filter(({ verb }) => !readingVerbs.includes(verb));

function leaves(command: Command, path: string[] = []): { path: string; command: Command }[] {
  if (command.commands.length === 0) return [{ path: path.join(' '), command }];
  return command.commands.flatMap((child) => leaves(child, [...path, child.name()]));
}

/** Arguments with which the verb is accepted. The spec is a real one, so that a start would really start a run. */
function argumentsOf(command: Command): string[] {
  const values: Record<string, string> = {
    spec: resolve('presets/tiny.yaml'),
    file: resolve('presets/tiny.yaml'),
    '--numerics': 'cpu/2',
    '--from': '2026-01-01T00:00Z',
    '--to': '2026-01-02T00:00Z',
  };
  return [
    ...command.registeredArguments.map((argument) => values[argument.name()] ?? 'x'),
    ...command.options
      .filter(({ mandatory, long }) => mandatory && long !== null && long !== undefined)
      .flatMap(({ long }) => [long ?? '', values[long ?? ''] ?? 'x']),
    ...(command.options.some(({ long }) => long === '--detach') ? ['--detach'] : []),
  ];
}

const folder = mkdtempSync(join(tmpdir(), 'longhaul-named-'));
const empty = join(folder, 'empty');
let foreign: TestTemporal;
beforeAll(async () => {
  mkdirSync(empty);
  foreign = await startTemporal();
  process.env['LONGHAUL_TEST_DEFAULT_PORT'] = foreign.address.split(':')[1];
  await import(new URL('../support/preloads/default-port.mjs', import.meta.url).href);
});
afterAll(async () => {
  delete process.env['LONGHAUL_TEST_DEFAULT_PORT'];
  await foreign?.stop();
  rmSync(folder, { recursive: true, force: true });
});

/** Runs the command line with the foreign server at the default address. */
const longhaul = (args: readonly string[], cwd = empty): Promise<Answer> =>
  commandLine(args, {
    cwd,
    env: { TEMPORAL_ADDRESS: undefined, TEMPORAL_CONFIG_FILE: undefined, XDG_CONFIG_HOME: folder },
  });

async function workflowsOf(server: TestTemporal): Promise<number> {
  let count = 0;
  for await (const _ of server.client.workflow.list()) count += 1;
  for await (const _ of server.client.schedule.list()) count += 1;
  return count;
}

describe('in an empty folder beside a foreign server at the default address', () => {
  it('all verbs that write are in the table of commands, and all other verbs are known to read', () => {
    expect(verbs.map(({ verb }) => verb)).toEqual(expect.arrayContaining(readingVerbs));
    expect(writingVerbs.map(({ verb }) => verb)).toEqual(
      expect.arrayContaining(['train', 'pause', 'cancel', 'fork', 'sweeps run', 'sweeps delete']),
    );
  });

  it.each(writingVerbs)('$verb is refused', async ({ args }) => {
    const { code, output, errors } = await longhaul(args);
    expect(errors).toMatch(/^error: no Temporal server is named for this command: /);
    expect(errors).toContain('--temporal-address or TEMPORAL_ADDRESS');
    expect({ code, output }).toEqual({ code: 1, output: '' });
  });

  it.each([{ verb: 'pause', args: ['pause', 'x'] }])(
    '$verb gives a script its refusal as JSON',
    async ({ args }) => {
      const { code, output } = await longhaul([...args, '--json']);
      expect(JSON.parse(output)).toMatchObject({ error: { name: 'UnnamedServer' } });
      expect(code).toBe(1);
    },
  );

  it('a verb that only reads uses the foreign server and says so', async () => {
    const { code, errors } = await longhaul(['sweeps', 'list']);
    expect(errors).toBe('on localhost:7233, namespace default (the default address: no server is named)\n');
    expect(code).toBe(0);
  });

  it('no verb has changed anything on the foreign server', async () => {
    expect(await workflowsOf(foreign)).toBe(0);
  });

  it('a stack folder in which no stack runs names no server', async () => {
    const cwd = join(folder, 'stopped');
    mkdirSync(join(cwd, '.longhaul'), { recursive: true });
    const { code, errors } = await longhaul(['pause', 'x'], cwd);
    expect(errors).toMatch(/^error: no stack runs in \.longhaul, .*`longhaul up`/);
    expect(code).toBe(1);
  });

  it.each([
    ['train', ['train', 'nope.yaml']],
    ['data prepare', ['data', 'prepare', 'nope.yaml']],
    ['sweeps run', ['sweeps', 'run', 'nope.yaml']],
  ])('a file that is missing is named before the server: %s', async (_, args) => {
    const { code, errors } = await longhaul(args);
    expect(errors).toMatch(/nope\.yaml has one problem:\n {2}there is no such file/);
    expect(code).toBe(1);
  });

  it('a named server is used, and the output says which', async () => {
    const { errors } = await longhaul(['pause', 'x', '--temporal-address', foreign.address]);
    expect(errors).toMatch(
      new RegExp(
        `^on ${foreign.address}, namespace default \\(from --temporal-address\\)\\nerror: there is no run`,
      ),
    );
  });

  it('only the known files open a connection', () => {
    const opening = readdirSync('src/cli', { recursive: true, encoding: 'utf8' }).filter(
      (name) =>
        name.endsWith('.ts') &&
        /connectClient\(|openConnection\(|Connection\.(connect|lazy)\(/.test(
          readFileSync(join('src/cli', name), 'utf8'),
        ),
    );
    // `doctor` only reads, and `quickstart` has started the server itself.
    expect(opening.sort()).toEqual([
      'stack/doctor-checks.ts',
      'temporal-access.ts',
      'train/quickstart-command.ts',
    ]);
  });
});

it('a read-only client cannot write', async () => {
  const { client, close } = await connectClient(plainTemporalConfig(foreign.address), 5_000, {
    readOnly: true,
  });
  try {
    await expect(
      client.workflow.start('trainingRun', { taskQueue: 'x', workflowId: 'x' }),
    ).rejects.toMatchObject({ cause: { details: expect.stringContaining('only reads') as string } });
  } finally {
    await close();
  }
});

describe('the stack in a folder', () => {
  const home = join(folder, 'home');
  const stack = join(home, '.longhaul');
  const below = join(home, 'specs', 'deep');
  const id = newStackId();
  let lock: FolderLock;
  let own: TestTemporal;
  beforeAll(async () => {
    mkdirSync(below, { recursive: true });
    lock = lockFolder(stack, 'a test');
    own = await startTemporal();
    await nameServer(own.client, stackIdentity(id, stack));
  });
  afterAll(async () => {
    lock?.release();
    await own?.stop();
  });
  const pointAt = (server: TestTemporal, more: object = { id }): void =>
    writeFileSync(
      join(stack, 'stack.json'),
      JSON.stringify({ temporal: server.address, store: `dir:${folder}`, ui: '', environments: '', ...more }),
    );

  it('is found in the folders above, and its server is used', async () => {
    pointAt(own);
    const { errors } = await longhaul(['pause', 'x'], below);
    expect(errors).toMatch(
      new RegExp(
        `^on ${own.address}, namespace default \\(from the stack in ../../.longhaul\\)\\nerror: there is no run`,
      ),
    );
  });

  it.each(['pause', 'status'])('is not confused with another server at its address: %s', async (verb) => {
    pointAt(foreign);
    const { code, errors } = await longhaul([verb, 'x'], home);
    expect(errors).toMatch(
      /^error: the Temporal server at \S+ is not started by a stack, so it is not the server of the stack in \.longhaul: /,
    );
    expect(code).toBe(1);
  });

  it('is not confused with the server of another stack, and the error names that stack', async () => {
    pointAt(own, { id: newStackId() });
    const { code, errors } = await longhaul(['cancel', 'x'], home);
    expect(errors).toContain(
      `is that of another stack, ${(await stackOfServer(own.client))?.place}, so it is not the server`,
    );
    expect(code).toBe(1);
  });
});
