// Starts the example server as a process. Prints one JSON line {"url": …} when it accepts requests.
import { randomBytes } from 'node:crypto';
import { rmSync, writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { servedApps, faultsOfApps, listsOf } from './served-apps.js';
import { createEnvironmentServer, type EnvironmentServerOptions } from './environment-server.js';

const usage = `usage: node dist/examples/apps/server/main.js [--port N] [--host ADDRESS] [--allow-remote] [--token-file PATH]
         [--max-sessions N] [--session-timeout SECONDS] [--resume-timeout SECONDS]
         [--fault-rate 0..1] [--tool-error-rate 0..1]
The grading token comes from LONGHAUL_GRADING_TOKEN; if that is not set, a new token is written to --token-file.`;

function log(line: Record<string, unknown>): void {
  process.stderr.write(`${JSON.stringify({ component: 'environment_server', ...line })}\n`);
}

function readOptions(): Omit<EnvironmentServerOptions, 'apps' | 'faults'> {
  const { values } = parseArgs({
    options: {
      port: { type: 'string', default: process.env.LONGHAUL_ENVIRONMENT_PORT ?? '0' },
      host: { type: 'string', default: '127.0.0.1' },
      'allow-remote': { type: 'boolean', default: false },
      'token-file': { type: 'string' },
      'max-sessions': { type: 'string', default: process.env.MAX_CONCURRENT_ENVS ?? '1024' },
      'session-timeout': { type: 'string', default: '1800' },
      'resume-timeout': { type: 'string', default: '30' },
      'fault-rate': { type: 'string', default: '0' },
      'tool-error-rate': { type: 'string', default: '0' },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) {
    process.stdout.write(`${usage}\n`);
    process.exit(0);
  }
  return {
    port: number('--port', values.port, 0, 65_535),
    host: values.host,
    allowRemote: values['allow-remote'],
    gradingToken: gradingToken(values['token-file']),
    maxSessions: number('--max-sessions', values['max-sessions'], 1, 1_000_000),
    sessionTimeoutMs: 1000 * number('--session-timeout', values['session-timeout'], 1, 1_000_000),
    resumeTimeoutMs: 1000 * number('--resume-timeout', values['resume-timeout'], 1, 1_000_000),
    faultRate: number('--fault-rate', values['fault-rate'], 0, 1),
    toolErrorRate: number('--tool-error-rate', values['tool-error-rate'], 0, 1),
    log,
  };
}

function number(flag: string, text: string, low: number, high: number): number {
  const value = Number(text);
  const whole = high > 1 ? Number.isInteger(value) : Number.isFinite(value);
  if (text.trim() !== '' && whole && value >= low && value <= high) return value;
  throw new Error(
    `${flag} is ${JSON.stringify(text)}; it must be ${high > 1 ? 'a whole number ' : ''}from ${low} to ${high}`,
  );
}

function gradingToken(file: string | undefined): string {
  const given = process.env.LONGHAUL_GRADING_TOKEN;
  const token = given ? given : randomBytes(24).toString('base64url');
  if (file !== undefined) {
    // Removed first, because an existing file would keep its mode.
    rmSync(file, { force: true });
    writeFileSync(file, `${token}\n`, { mode: 0o600, flag: 'wx' });
  } else if (!given) {
    throw new Error(
      'no grading token: set LONGHAUL_GRADING_TOKEN, or name a file for a new token with --token-file',
    );
  }
  return token;
}

async function main(): Promise<void> {
  const server = await createEnvironmentServer({
    ...readOptions(),
    apps: servedApps(),
    listsOf,
    faults: faultsOfApps,
  });
  const stop = (): void => {
    void server.close().then(() => process.exit(0));
  };
  process.once('SIGTERM', stop);
  process.once('SIGINT', stop);
  process.stdout.write(`${JSON.stringify({ url: server.url })}\n`);
}

try {
  await main();
} catch (error) {
  log({ event: 'start_failed', message: error instanceof Error ? error.message : String(error) });
  process.exitCode = 1;
}
