// The number of attempts is not limited, but repeated failures in the same way end the activity (R27).
import { ApplicationFailure } from '@temporalio/common';
import { ServiceError } from '@temporalio/client';
import { MockActivityEnvironment } from '@temporalio/testing';
import { DefaultLogger } from '@temporalio/worker';
import { describe, expect, it } from 'vitest';
import { withFailures } from '../../../src/activities/attempt/failure-mapping.js';
import { createNodeActivities, createTransferActivities } from '../../../src/activities/node-activities.js';
import type { NodeDeps } from '../../../src/activities/node-deps.js';
import { createOrchestratorActivities } from '../../../src/activities/orchestrator-activities.js';
import type { OpenedDeps } from '../../../src/activities/orchestrator-deps.js';
import { maxSameFailures } from '../../../src/activities/attempt/repeated-failures.js';
import { currentScope } from '../../../src/activities/attempt/scope.js';
import { EngineError } from '../../../src/engine/policy-engine.js';
import { EnvironmentError } from '../../../src/environments/environment.js';
import { StoreFull, StoreUnavailable } from '../../../src/store/record-errors.js';
import { openConnection } from '../../../src/workers/temporal/temporal-connection.js';

const logger = new DefaultLogger('ERROR');
let executions = 0;

/** Tries one execution of an activity `tries` times; returns the failure of each try. */
async function failures(activity: () => Promise<unknown>, tries: number): Promise<Error[]> {
  const info = { activityId: `step-000003/part-${++executions}` };
  const found: Error[] = [];
  for (let attempt = 1; attempt <= tries; attempt++) {
    const environment = new MockActivityEnvironment({ ...info, attempt }, { logger });
    const outcome: unknown = await environment.run(activity).catch((error: unknown) => error);
    if (!(outcome instanceof Error)) throw new Error(`try ${attempt} was to fail`);
    found.push(outcome);
  }
  return found;
}

const noProgress = (error: Error | undefined): boolean =>
  error instanceof ApplicationFailure && error.type === 'NoProgress' && error.nonRetryable === true;

function failing(error: (attempt: number) => Error): () => Promise<unknown> {
  let attempt = 0;
  return () => withFailures(() => Promise.reject(error(++attempt)))(undefined);
}

describe('an activity that fails five times in the same way', () => {
  it.each([
    ['a bug in our code', () => new TypeError("Cannot read properties of undefined (reading 'tokens')")],
    ['data that cannot be used', () => new RangeError('the prompt has 900 tokens, 448 are allowed')],
    ['an error that the engine returns', () => new EngineError('OutOfMemory', 'no room for the moments')],
    [
      'a healthy server that cannot open the task',
      () => new EnvironmentError('failed', 'open', 'no such task'),
    ],
    // The message of this error contains a process id and log lines, so it differs each time.
    [
      'an engine that dies',
      (attempt: number) => new EngineError('EngineExited', `The engine (process ${attempt}) …`),
    ],
  ])('fails with NoProgress: %s', async (_, error) => {
    const found = await failures(failing(error), 5);
    expect(found.map(noProgress)).toEqual([false, false, false, false, true]);
    expect(found[4]?.message).toContain(`failed 5 times in the same way: ${error(5).message}`);
  });

  it('fails with NoProgress even if other failures happen in between', async () => {
    const found = await failures(
      failing((attempt) => (attempt % 2 === 0 ? new StoreUnavailable('no answer') : new TypeError('broken'))),
      9,
    );
    expect(found.findIndex(noProgress)).toBe(8);
  });

  it.each(
    Object.entries({
      ...createNodeActivities(brokenParts<NodeDeps>()),
      ...createTransferActivities(brokenParts<NodeDeps>()),
      ...createOrchestratorActivities(brokenParts<OpenedDeps>()),
    }) as [string, (input: unknown) => Promise<unknown>][],
  )('ends with NoProgress, whichever activity it is: %s', async (_, activity) => {
    const spec = brokenParts<object>();
    const runs = [{ workflowId: 'train/unit', firstExecutionRunId: 'first' }];
    const found = await failures(() => activity({ run: 'unit', step: 3, owner: 1, spec, runs }), 5);
    expect(found.map(noProgress)).toEqual([false, false, false, false, true]);
    expect(found[4]?.message).toMatch(/ is broken$/);
  });
});

describe('an activity is retried without limit', () => {
  it.each([
    ['the store does not answer', () => new StoreUnavailable('no answer for 30 s')],
    ['the store is full', () => new StoreFull('no space left')],
    ['an environment is away', () => new EnvironmentError('unavailable', 'connect', 'refused')],
    [
      'a connection is refused',
      () => Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' }),
    ],
    ['a folder on another machine is gone', () => Object.assign(new Error('ESTALE'), { code: 'ESTALE' })],
    ['Temporal does not answer', () => new ServiceError('14 UNAVAILABLE: no connection')],
    ['it fails in another way each time', (attempt: number) => new Error(`try ${attempt}`)],
  ])('if %s', async (_, error) => {
    expect((await failures(failing(error), 12)).filter(noProgress)).toEqual([]);
  });

  it('if a call to Temporal fails with an error of gRPC itself', async () => {
    const connection = openConnection({ address: '127.0.0.1:1' });
    const call = (): Promise<unknown> =>
      connection.withDeadline(Date.now() + 50, () => connection.workflowService.getSystemInfo({}));
    const error: unknown = await call().catch((failure: unknown) => failure);
    await connection.close();
    expect(error).not.toBeInstanceOf(ServiceError);
    expect(error).toMatchObject({
      code: expect.any(Number) as number,
      details: expect.any(String) as string,
    });
    expect(
      (
        await failures(
          failing(() => error as Error),
          12,
        )
      ).filter(noProgress),
    ).toEqual([]);
  });

  it('if each try leaves a record, because that is progress', async () => {
    const gettingOn = withFailures(() => {
      currentScope().recorded();
      return Promise.reject(new EngineError('EngineExited', 'killed'));
    });
    expect((await failures(() => gettingOn(undefined), 12)).filter(noProgress)).toEqual([]);
  });
});

it('an attempt that must stop is not counted, whatever its failure', async () => {
  const info = { activityId: `step-000003/part-${++executions}` };
  const broken = withFailures(() => Promise.reject(new TypeError('broken')));
  const attempts = async (count: number, stopping: boolean): Promise<Error[]> => {
    const found: Error[] = [];
    for (let attempt = 1; attempt <= count; attempt++) {
      const environment = new MockActivityEnvironment({ ...info, attempt }, { logger });
      if (stopping) environment.cancel('WORKER_SHUTDOWN');
      const outcome: unknown = await environment
        .run(() => broken(undefined))
        .catch((error: unknown) => error);
      if (outcome instanceof Error) found.push(outcome);
    }
    return found;
  };
  const stopped = await attempts(maxSameFailures - 1, true);
  expect(stopped.map(({ name }) => name)).toEqual(Array(maxSameFailures - 1).fill('CancelledFailure'));
  const found = await attempts(maxSameFailures, false);
  expect(found.map(noProgress)).toEqual([false, false, false, false, true]);
});

it('failures are counted from 0 in a new execution, because a person may have fixed the cause', async () => {
  const broken = failing(() => new TypeError('broken'));
  for (const time of ['first', 'second']) {
    const found = await failures(broken, 5);
    expect(found.map(noProgress), time).toEqual([false, false, false, false, true]);
  }
});

/** Every access to a part of these dependencies throws an error. */
function brokenParts<Deps extends object>(): Deps {
  return new Proxy({} as Deps, {
    get: (_, name) => {
      throw new TypeError(`${String(name)} is broken`);
    },
  });
}
