// A process that cannot start: the supervisor retries for ever if something external is missing, and gives up if the process is broken.
// Also tests a full disk, on which the supervisor cannot write its list.
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { ProcessLog } from '../../src/stack/process-log.js';
import { ProcessRegistry } from '../../src/stack/process-registry.js';
import { SupervisedProcess } from '../../src/stack/supervised-process.js';
import { waitsForOthers } from '../../src/workers/process/worker-exit.js';
import { until } from '../support/until.js';

let folder: string;
let said: string[];
let gaveUp: Error | null;
let supervised: SupervisedProcess;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'longhaul-supervised-'));
  said = [];
  gaveUp = null;
});
afterEach(async () => {
  await supervised.stop();
  rmSync(folder, { recursive: true, force: true });
});

const log = (message: string): void => void said.push(message);
const serving = (): number | null => {
  const path = join(folder, 'serving');
  return existsSync(path) ? Number(readFileSync(path, 'utf8')) : null;
};

/** The process logs a line and exits with `code` until the file `room` exists in the folder; then it serves. */
function supervise(code: number, typed?: string): SupervisedProcess {
  mkdirSync(join(folder, 'logs'));
  const program = `
    const fs = require('node:fs');
    if (fs.existsSync('${join(folder, 'room')}')) {
      fs.writeFileSync('${join(folder, 'serving')}', String(process.pid));
      setInterval(() => {}, 1000);
    } else { console.error(JSON.stringify({ message: 'no space is left' })); process.exit(${code}); }`;
  return new SupervisedProcess(
    {
      name: 'node',
      command: process.execPath,
      args: ['-e', program],
      env: process.env,
      ...(typed === undefined ? {} : { typed }),
      logFile: join(folder, 'logs', 'node.log'),
      healthy: (pid) => Promise.resolve(serving() === pid),
      startDeadlineMs: 10_000,
      stopGraceMs: 1_000,
      restartPauseMs: { first: 1, longest: 5 },
    },
    {
      registry: new ProcessRegistry(join(folder, 'processes.json'), { log, retryMs: 20 }),
      log,
      gaveUp: (error) => (gaveUp = error),
    },
  );
}

async function startsWithoutRoom(code: number): Promise<void> {
  supervised = supervise(code);
  await expect(supervised.start()).rejects.toThrow(/node ended before it served .*\n {2}no space is left/s);
}

it('a process that lacks something external is restarted until it serves, and its wait is logged once', async () => {
  await startsWithoutRoom(waitsForOthers);
  await until(() => supervised.restarts > 12, 'more starts than a broken process gets');
  expect(gaveUp).toBeNull();
  expect(said).toEqual(['node waits:\n  no space is left']);
  writeFileSync(join(folder, 'room'), '');
  await until(() => supervised.pid !== null && serving() === supervised.pid, 'the process to serve');
});

it('the error of a start has lines of this start alone, and what it waits for is said at once and leads the error', async () => {
  mkdirSync(join(folder, 'logs'));
  const logFile = join(folder, 'logs', 'node.log');
  writeFileSync(logFile, `${JSON.stringify({ message: 'of an earlier start', waits: true })}\n`);
  const never = (line: object): SupervisedProcess => {
    const program = `console.error(${JSON.stringify(JSON.stringify(line))}); setInterval(() => {}, 1000);`;
    return new SupervisedProcess(
      {
        ...{ name: 'node', command: process.execPath, args: ['-e', program], env: process.env, logFile },
        ...{ healthy: () => Promise.resolve(false), startDeadlineMs: 3_000, stopGraceMs: 1_000 },
      },
      {
        registry: new ProcessRegistry(join(folder, 'processes.json'), { log }),
        log,
        gaveUp: () => undefined,
      },
    );
  };
  supervised = never({ message: 'the server is waited for', waits: true });
  const start = supervised.start();
  start.catch(() => undefined);
  await until(() => said.length > 0, 'the wait to be said');
  expect(said).toEqual(['node waits: the server is waited for']);
  await expect(start).rejects.toThrow(
    /^the server is waited for\nnode has waited for 3 s \(log: .*node\.log\)$/,
  );
  await supervised.stop();
  supervised = never({ message: 'nearly' });
  await expect(supervised.start()).rejects.toThrow(
    /^node did not serve in time \(3 s allowed; log: .*\)\.\n {2}nearly$/,
  );
});

it('a broken process is given up after a few starts, and the error has the end of its log', async () => {
  await startsWithoutRoom(1);
  await until(() => gaveUp !== null, 'the supervisor to give up');
  expect(gaveUp).toMatchObject({
    message: expect.stringMatching(/node exited with 1, 9 times in a row\.\n.*no space is left$/s) as string,
  });
});

async function startsWell(): Promise<number> {
  writeFileSync(join(folder, 'room'), '');
  supervised = supervise(1);
  await supervised.start();
  if (supervised.pid === null) throw new Error('the process has ended');
  return supervised.pid;
}

const servesAgain = (before: number) =>
  until(
    () => supervised.pid !== null && supervised.pid !== before && serving() === supervised.pid,
    'the process to serve again',
  );

it.runIf(existsSync('/dev/full'))(
  'a process that dies while the supervisor’s disk is full is restarted, and listed when the disk has room again',
  async () => {
    const before = await startsWell();
    // Every write to /dev/full fails with ENOSPC.
    const draft = join(folder, 'processes.json.draft');
    symlinkSync('/dev/full', draft);
    process.kill(before, 'SIGKILL');
    await servesAgain(before);
    const listed = (): unknown => JSON.parse(readFileSync(join(folder, 'processes.json'), 'utf8'));
    expect(listed()).toMatchObject([{ pid: before }]);
    expect(said.filter((line) => line.includes('processes.json'))).toHaveLength(1);
    rmSync(draft);
    await until(() => !JSON.stringify(listed()).includes(String(before)), 'the list to be written');
    expect(listed()).toMatchObject([{ name: 'node', pid: supervised.pid }]);
  },
);

it('a process whose log could not be opened is started again when the log can be opened', async () => {
  const before = await startsWell();
  const [logs, aside] = [join(folder, 'logs'), join(folder, 'aside')];
  renameSync(logs, aside);
  process.kill(before, 'SIGKILL');
  await until(() => said.some((line) => line.includes('cannot be started yet')), 'a start without a log');
  renameSync(aside, logs);
  await servesAgain(before);
  expect(gaveUp).toBeNull();
});

it('a command that a person typed and that ends at once: its code, the command, the folder and its first error', async () => {
  supervised = supervise(3, 'node server.mjs');
  await expect(supervised.start()).rejects.toThrow(
    `node ended before it served (exit code 3; log: ${join(folder, 'logs', 'node.log')}).\n` +
      `  command: node server.mjs, in ${process.cwd()}\n  no space is left`,
  );
  const path = join(folder, 'trace.log');
  const log = new ProcessLog(path);
  const trace = Array.from({ length: 9 }, (_, n) => `    at line ${n}`);
  writeFileSync(path, ['loader:1', '  throw err;', "Error: Cannot find module 'x'", ...trace].join('\n'));
  expect(
    log
      .tail()
      .split('\n')
      .map((line) => line.trim()),
  ).toEqual([...["Error: Cannot find module 'x'", '…'], ...trace.slice(-5).map((line) => line.trim())]);
});
