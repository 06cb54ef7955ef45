// The stock `temporal` command, as an operator types it, connected to a test's server.
import { execFile } from 'node:child_process';
import { findTemporal } from '../find-tools.js';

export interface CommandAnswer {
  /** Exit code. */
  code: number;
  output: string;
  errors: string;
}

/** Longer than any answer that a test waits for. The server's own limits are shorter. */
const deadlineMs = 40_000;

/** Returns a function that runs one command line. It resolves whatever the exit code is. */
export function temporalCli(address: string): (...args: string[]) => Promise<CommandAnswer> {
  return (...args) =>
    new Promise((resolve, reject) => {
      const all = [...args, '--address', address, '--disable-config-file', '--color', 'never'];
      execFile(findTemporal(), all, { timeout: deadlineMs }, (error, output, errors) => {
        const code = error ? error.code : 0;
        if (typeof code !== 'number') reject(new Error(`temporal ${args.join(' ')}: ${error?.message}`));
        else resolve({ code, output, errors });
      });
    });
}
