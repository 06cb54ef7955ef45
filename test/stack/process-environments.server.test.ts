// Reads from the operating system which process of a real `longhaul up` has which secret.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { freePort } from '../../src/stack/free-port.js';
import { findEngine } from '../support/find-tools.js';
import { withDescendants } from '../support/servers/listeners.js';
import { until } from '../support/until.js';

const secrets = {
  SLACK_BOT_TOKEN: 'xoxb-of-the-bot-4711',
  WANDB_API_KEY: 'key-of-wandb-4712',
  GYM_GRADING: 'token-of-a-gym-4713',
  TEMPORAL_API_KEY: 'key-of-another-server-4714',
  AWS_SECRET_ACCESS_KEY: 'key-of-a-bucket-4715',
  DATABASE_PASSWORD: 'password-of-a-database-4716',
  LONGHAUL_GRADING_TOKEN: 'token-of-another-stack-4717',
  LONGHAUL_GYM_TOKEN: 'token-of-another-gym-4718',
  NODE_AUTH_TOKEN: 'token-of-a-registry-4719',
};

/** Processes that may have each secret, in addition to the supervisor, to which the user gave them all. */
const allowed: Record<string, string[]> = {
  SLACK_BOT_TOKEN: ['follower'],
  WANDB_API_KEY: ['follower'],
  GYM_GRADING: ['node', 'orchestrator'],
  TEMPORAL_API_KEY: [],
  AWS_SECRET_ACCESS_KEY: ['follower', 'node', 'orchestrator'],
  DATABASE_PASSWORD: ['node', 'orchestrator'],
  LONGHAUL_GRADING_TOKEN: [],
  LONGHAUL_GYM_TOKEN: ['node', 'orchestrator'],
  NODE_AUTH_TOKEN: ['node', 'orchestrator'],
};

describe.skipIf(!existsSync('/proc/self/environ'))('longhaul up (reads /proc of Linux)', () => {
  const folder = mkdtempSync(join(tmpdir(), 'longhaul-environ-'));
  let up: ChildProcess;
  beforeAll(async () => {
    const ports = ['--temporal-port', String(await freePort()), '--ui-port', String(await freePort())];
    const server = [
      '--environments',
      `'${process.execPath}' ${resolve('dist/examples/apps/server/main.js')}`,
    ];
    up = spawn(
      resolve('bin/longhaul'),
      ['up', '--json', '--folder', join(folder, 'stack'), ...ports, ...server],
      {
        env: { ...process.env, ...secrets, LONGHAUL_ENGINE: findEngine() },
        stdio: ['ignore', 'pipe', 'inherit'],
      },
    );
    let said = '';
    up.stdout?.on('data', (piece: Buffer) => (said += piece.toString()));
    await until(() => said.includes('\n') || up.exitCode !== null, 'the stack to be up', 120_000);
    expect(up.exitCode).toBe(null);
  });
  afterAll(async () => {
    up.kill('SIGTERM');
    if (up.exitCode === null) await once(up, 'close');
    rmSync(folder, { recursive: true, force: true });
  });

  const read = (pid: number, file: string): string => {
    try {
      return readFileSync(`/proc/${pid}/${file}`, 'utf8');
    } catch {
      return '';
    }
  };
  const roles: [role: string, command: RegExp][] = [
    ['temporal', /server\0start-dev/],
    ['environments', /apps\/server\/main\.js/],
    ['orchestrator', /orchestrator-main\.js/],
    ['node', /node-main\.js/],
    ['follower', /follower-main\.js/],
    ['engine', /longhaul-engine[^\0]*\0--fd/],
  ];
  const roleOf = (pid: number): string => {
    const command = read(pid, 'cmdline');
    return (
      roles.find(([, pattern]) => pattern.test(command))?.[0] ?? `unknown: ${command.replaceAll('\0', ' ')}`
    );
  };
  const children = (): number[] => withDescendants([up.pid ?? 0]).filter((pid) => pid !== up.pid);

  it('gives each secret only to the processes that need it', async () => {
    const all = roles.map(([role]) => role).sort();
    await until(
      () => [...new Set(children().map(roleOf))].sort().join() === all.join(),
      'all processes to run',
    );
    const holders = Object.fromEntries(
      Object.entries(secrets).map(([name, secret]) => [
        name,
        children()
          .filter((pid) => read(pid, 'environ').includes(secret))
          .map(roleOf)
          .sort(),
      ]),
    );
    expect(holders).toEqual(allowed);
  });

  it('gives the stack’s own grading token only to the environment server', () => {
    const token = readFileSync(join(folder, 'stack', 'grading-token'), 'utf8').trim();
    const holders = children().filter((pid) => read(pid, 'environ').includes(token));
    expect(holders.map(roleOf)).toEqual(['environments']);
    // Every user of the machine can read command lines.
    expect(children().filter((pid) => read(pid, 'cmdline').includes(token))).toEqual([]);
  });
});
