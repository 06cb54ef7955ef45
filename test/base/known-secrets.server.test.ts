// A process does not reveal its secrets, neither in a failure nor in a log.
import { spawnSync } from 'node:child_process';
import { ApplicationFailure } from '@temporalio/common';
import { MockActivityEnvironment } from '@temporalio/testing';
import { describe, expect, it } from 'vitest';
import { keepSecret, secretsIn } from '../../src/base/known-secrets.js';
import { withFailures } from '../../src/activities/attempt/failure-mapping.js';
import { StoreUnfit } from '../../src/store/record-errors.js';

const secret = 'k3y+of/nobody=else';
const said = `403 InvalidToken: ${secret}, also ${Buffer.from(secret).toString('base64')}`;

describe('a variable counts as a secret by its name:', () => {
  it.each([
    'AWS_SECRET_ACCESS_KEY',
    'AWS_SESSION_TOKEN',
    'TEMPORAL_API_KEY',
    'TRACKER_TOKEN',
    'DB_PASSWORD',
    'TEMPORAL_GRPC_META_X',
  ])('%s is', (name) => {
    expect(secretsIn({ [name]: secret })).toEqual([secret]);
  });
  it.each([
    'TOKENIZERS_PARALLELISM',
    'PATH',
    'AWS_REGION',
    'LONGHAUL_GRADING_TOKEN_FILE',
    'TEMPORAL_ADDRESS',
  ])('%s is not', (name) => {
    expect(secretsIn({ [name]: secret })).toEqual([]);
  });
});

describe('a failing activity', () => {
  it.each([
    ['an error', () => new Error(said)],
    [
      'a fatal error with a cause',
      () => new StoreUnfit(`refused (${said})`, { cause: new Error(said, { cause: new Error(said) }) }),
    ],
    ['a failure of Temporal', () => ApplicationFailure.nonRetryable(said, 'InvalidSpec')],
  ])(
    'throws %s without the secret, which is also absent from its stack and its causes',
    async (_what, make) => {
      keepSecret(secret);
      const failing = withFailures(() => Promise.reject(make()));
      const thrown = (await new MockActivityEnvironment()
        .run(failing, undefined)
        .catch((error: unknown) => error)) as Error;
      for (let error: unknown = thrown; error instanceof Error; error = error.cause) {
        expect(error.message).toContain('[secret removed]');
        for (const text of [error.message, error.stack ?? '']) {
          expect(text).not.toContain(secret);
          expect(text).not.toContain(Buffer.from(secret).toString('base64'));
        }
      }
    },
  );
});

describe('a worker', () => {
  it('logs its messages and its fatal error without the secret', () => {
    const script = `
      import { exitWith } from './src/workers/process/worker-exit.ts';
      import { installRuntime } from './src/workers/process/worker-log.ts';
      installRuntime('node', null)(${JSON.stringify(said)});
      await exitWith('node', () => Promise.reject(new Error(${JSON.stringify(said)})));`;
    const { stderr, status } = spawnSync(
      process.execPath,
      ['--import', './test/support/preloads/typescript-register.mjs', '--input-type=module', '-e', script],
      { encoding: 'utf8', env: { ...process.env, SOME_SERVER_TOKEN: secret } },
    );
    expect(status).toBe(1);
    expect(stderr.match(/\[secret removed\]/g)?.length).toBeGreaterThanOrEqual(4);
    expect(stderr).not.toContain(secret);
  });
});
