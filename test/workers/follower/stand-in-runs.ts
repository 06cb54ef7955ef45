// A Temporal server for a test file, and a worker that runs the workflow of `stand-in-run.ts` in place of real runs.
import { fileURLToPath } from 'node:url';
import { bundleWorkflowCode, type Worker } from '@temporalio/worker';
import { testWorker } from '../../support/test-worker.js';
import { afterAll, beforeAll } from 'vitest';
import { startTemporal, type TestTemporal } from '../../support/servers/temporal-server.js';
import { until } from '../../support/until.js';
import type { StandInEnd, trainingRun } from './stand-in-run.js';

const taskQueue = 'stand-in-runs';

export let temporal: TestTemporal;

/** Starts the server and the worker before the file's tests, and stops them after the tests. */
export function useStandInRuns(): void {
  let worker: Worker;
  let running: Promise<void>;
  beforeAll(async () => {
    temporal = await startTemporal();
    const workflowsPath = fileURLToPath(new URL('stand-in-run.ts', import.meta.url));
    const workflowBundle = await bundleWorkflowCode({ workflowsPath });
    worker = await testWorker({ connection: temporal.connection, taskQueue, workflowBundle });
    running = worker.run();
  });
  afterAll(async () => {
    worker?.shutdown();
    await running;
    await temporal?.stop();
  });
}

export async function startStandIn(name: string, end: StandInEnd) {
  return temporal.client.workflow.start<typeof trainingRun>('trainingRun', {
    ...{ taskQueue, workflowId: `train/${name}`, args: [end] },
  });
}

/** Resets the current execution to its first workflow task; resolves when the new execution is current. */
export async function resetStandIn(name: string): Promise<void> {
  const workflowId = `train/${name}`;
  const { runId } = await temporal.client.workflow.getHandle(workflowId).describe();
  const workflowTaskFinishEventId = await until(async () => {
    const { events } = await temporal.client.workflow.getHandle(workflowId, runId).fetchHistory();
    return events?.find((event) => event.workflowTaskCompletedEventAttributes)?.eventId;
  }, 'its first workflow task');
  await temporal.client.workflowService.resetWorkflowExecution({
    ...{ namespace: 'default', requestId: runId, reason: 'a test', workflowTaskFinishEventId },
    workflowExecution: { workflowId, runId },
  });
  const current = async (): Promise<string> =>
    (await temporal.client.workflow.getHandle(workflowId).describe()).runId;
  await until(async () => (await current()) !== runId, 'the reset');
}
