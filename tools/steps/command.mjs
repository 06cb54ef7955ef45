// Child processes of the set-up. While they work they print only a sign of life; when they fail they print their output.
import { spawn, spawnSync } from 'node:child_process';
import { accessSync, constants, createWriteStream, mkdirSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { createInterface } from 'node:readline';
import { cacheRoot, repository } from './cache.mjs';
import { isCompilerArt, showLife } from './sign-of-life.mjs';

/** A failure that the user can fix. It is printed without a stack trace. */
export class SetupError extends Error {}

/** The first executable with this name on PATH, or null. */
export function findOnPath(name) {
  for (const folder of (process.env.PATH ?? '').split(delimiter)) {
    if (folder === '') continue;
    const path = join(folder, name);
    try {
      accessSync(path, constants.X_OK);
      return path;
    } catch {
      // The executable is not in this folder.
    }
  }
  return null;
}

/** Standard output of a short command, or null if the command fails. */
export function outputOf(command, args, options = {}) {
  const result = spawnSync(command, args, { ...options, encoding: 'utf8', timeout: 20_000 });
  return result.status === 0 ? result.stdout : null;
}

/** Exit codes by signal. */
const endingSignals = { SIGHUP: 129, SIGINT: 130, SIGTERM: 143 };
const graceMs = 2_000;

function endGroup({ pid }, signal) {
  try {
    if (pid !== undefined) process.kill(-pid, signal);
  } catch (error) {
    // The whole group has ended.
    if (error.code !== 'ESRCH') throw error;
  }
}

/**
 * Starts a child whose process group ends when this process ends: a command left behind would disturb the next set-up. `release` undoes this;
 * call it when the child has ended.
 * @param {() => import('node:child_process').ChildProcess} start
 */
function startBound(start) {
  let child = { pid: undefined };
  const kill = () => endGroup(child, 'SIGKILL');
  const handlers = Object.entries(endingSignals).map(([signal, code]) => [
    signal,
    () => {
      endGroup(child, 'SIGTERM');
      child.once('close', () => {
        kill();
        process.exit(code);
      });
      setTimeout(() => process.exit(code), graceMs);
    },
  ]);
  // Before the start: a signal right after it must find the handlers.
  for (const [signal, handler] of handlers) process.on(signal, handler);
  // Also after an uncaught error, for example EPIPE because the reader of the output has gone.
  process.on('exit', kill);
  const release = () => {
    for (const [signal, handler] of handlers) process.off(signal, handler);
    process.off('exit', kill);
  };
  child = start();
  return { child, release };
}

/** A busy machine may take this long for one file that a compiler needs two minutes for. */
const defaultSilenceMs = 20 * 60_000;

/**
 * Runs a long command and writes its output to a log file. It is ended if it prints nothing for `silenceMs`: how long all of it takes says
 * nothing, because the machine may be busy. `describe` turns a line of output into text for the sign of life. `again` says what a second
 * run does with the part that is done.
 * @param {{label: string, cwd?: string, env?: NodeJS.ProcessEnv, silenceMs?: number, hint?: string, again?: string,
 * describe?: (line: string) => string}} options
 */
export function runLong(command, args, options) {
  const logs = join(cacheRoot, 'logs');
  mkdirSync(logs, { recursive: true });
  const logPath = join(logs, `${options.label.replaceAll(/[^A-Za-z0-9]+/g, '-')}.log`);
  const log = createWriteStream(logPath);
  const tail = [];
  return new Promise((resolve, reject) => {
    const { child, release } = startBound(() =>
      spawn(command, args, {
        cwd: options.cwd ?? repository,
        env: options.env ?? process.env,
        stdio: ['ignore', 'pipe', 'pipe'],
        // A process group of its own, so that it can be ended with all its children.
        detached: true,
      }),
    );
    let latest = null;
    const silenceMs = options.silenceMs ?? defaultSilenceMs;
    let isSilent = false;
    const limit = setTimeout(() => {
      isSilent = true;
      endGroup(child, 'SIGKILL');
    }, silenceMs);
    const onLine = (line) => {
      limit.refresh();
      log.write(`${line}\n`);
      if (line.trim() === '') return;
      tail.push(line.trimEnd());
      tail.splice(0, Math.max(0, tail.length - 40));
      if (!line.startsWith('npm warn') && !isCompilerArt(line))
        latest = options.describe?.(line) ?? line.trimEnd();
    };
    for (const input of [child.stdout, child.stderr]) createInterface({ input }).on('line', onLine);
    const endOfLife = showLife(options.label, () => latest);
    const settle = (error) => {
      release();
      endOfLife();
      clearTimeout(limit);
      log.end();
      if (error === null) resolve(undefined);
      else reject(error);
    };
    child.on('error', (error) => settle(new SetupError(`${command} did not start: ${error.message}`)));
    child.on('close', (code, signal) => {
      if (code === 0) return settle(null);
      const end = isSilent
        ? `printed nothing for ${silenceMs / 1000} s and was ended`
        : `ended with ${code ?? signal}`;
      const output = tail.map((line) => `    | ${line}`).join('\n');
      const notes = [`Whole log: ${logPath}`, isSilent ? options.again : undefined, options.hint];
      settle(
        new SetupError(
          [
            `${options.label}: ${command} ${end}.\n${output}`,
            ...notes.filter(Boolean).map((note) => `  ${note}`),
          ].join('\n'),
        ),
      );
    });
  });
}
