// Runs processes of the compose file outside of containers: the same commands and variables, but with this machine's addresses and folders.
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { repository } from '../support/repository.js';

export interface StackProcess {
  name: string;
  child: ChildProcess;
  log(): string;
  /** Sends SIGTERM and returns the exit code. Null if a signal ended the process, or if it was killed after `limitMs`. */
  leave(limitMs: number): Promise<number | null>;
}

export interface Plan {
  name: string;
  command: readonly string[];
  environment: Readonly<Record<string, string | number>>;
  /** Folder for the process's log. */
  folder: string;
}

/** Replacements in commands and variables. The longest match is replaced first. */
export type Places = readonly (readonly [inContainer: string, here: string])[];

export function placed(text: string | number, places: Places): string {
  const sorted = [...places].sort(([one], [other]) => other.length - one.length);
  return sorted.reduce((result, [inContainer, here]) => result.replaceAll(inContainer, here), String(text));
}

export function placedEnvironment(
  environment: Readonly<Record<string, string | number>> | undefined,
  places: Places,
): Record<string, string> {
  return Object.fromEntries(
    Object.entries(environment ?? {}).map(([name, value]) => [name, placed(value, places)]),
  );
}

/** Only the environment variables that every program needs. */
export function bareEnvironment(path: readonly string[]): NodeJS.ProcessEnv {
  const { PATH = '', HOME, XDG_CACHE_HOME, LONGHAUL_TEST_RUN } = process.env;
  const mark = LONGHAUL_TEST_RUN === undefined ? {} : { LONGHAUL_TEST_RUN };
  return { PATH: [...path, PATH].join(':'), HOME, ...(XDG_CACHE_HOME ? { XDG_CACHE_HOME } : {}), ...mark };
}

export function startProcess(
  { name, command, environment, folder }: Plan,
  path: readonly string[],
): StackProcess {
  const logFile = join(folder, `${name}.log`);
  const log = openSync(logFile, 'a');
  const [program = '', ...args] = command;
  const variables = Object.fromEntries(
    Object.entries(environment).map(([key, value]) => [key, String(value)]),
  );
  const child = spawn(program === 'node' ? process.execPath : program, args, {
    cwd: repository,
    env: { ...bareEnvironment(path), ...variables },
    stdio: ['ignore', log, log],
  });
  closeSync(log);
  return {
    ...{ name, child },
    log: () => readFileSync(logFile, 'utf8'),
    leave: async (limitMs) => {
      const killer = setTimeout(() => child.kill('SIGKILL'), limitMs);
      const gone = new Promise<void>((resolve) => {
        if (child.exitCode !== null || child.signalCode !== null) resolve();
        else child.once('exit', () => resolve());
      });
      child.kill('SIGTERM');
      await gone;
      clearTimeout(killer);
      return child.exitCode;
    },
  };
}
