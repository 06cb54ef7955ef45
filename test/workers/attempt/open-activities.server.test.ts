// A starting worker fails the activities of its predecessor by their task tokens, on real Temporal servers (R28).
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from '@temporalio/client';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { freePort } from '../../../src/stack/free-port.js';
import { OpenActivities } from '../../../src/workers/attempt/open-activities.js';
import { openConnection } from '../../../src/workers/temporal/temporal-connection.js';
import { sharedTemporal } from '../../support/servers/shared-temporal.js';
import {
  type ConnectedTemporal,
  startTemporal,
  type TestTemporal,
} from '../../support/servers/temporal-server.js';
import { uniqueName } from '../../workflows/scripted-run.js';

let temporal: ConnectedTemporal;
let other: TestTemporal;
beforeAll(async () => {
  [temporal, other] = await Promise.all([sharedTemporal(), startTemporal()]);
});
afterAll(() => Promise.all([temporal?.stop(), other?.stop()]));

/** Starts an activity on `server` and returns its task token, as a worker gets it. */
function beginActivity({ client }: ConnectedTemporal): Promise<string> {
  return client.withDeadline(Date.now() + 20_000, () => activityOf(client));
}

async function activityOf(client: Client): Promise<string> {
  const { workflowService } = client;
  const [namespace, name] = ['default', uniqueName('queue')];
  const taskQueue = { name };
  await client.workflow.start('any', { taskQueue: name, workflowId: name });
  const workflowTask = await workflowService.pollWorkflowTaskQueue({ namespace, taskQueue });
  const scheduleActivityTaskCommandAttributes = {
    ...{ activityId: 'one', activityType: { name: 'one' }, taskQueue },
    // The API's type for seconds is a Long of the SDK's library; it also takes a number.
    startToCloseTimeout: { seconds: 600 } as never,
  };
  await workflowService.respondWorkflowTaskCompleted({
    ...{ namespace, taskToken: workflowTask.taskToken },
    // COMMAND_TYPE_SCHEDULE_ACTIVITY_TASK
    commands: [{ commandType: 1, scheduleActivityTaskCommandAttributes }],
  });
  const { taskToken } = await workflowService.pollActivityTaskQueue({ namespace, taskQueue });
  return Buffer.from(taskToken).toString('base64');
}

describe('the open activities of a predecessor', () => {
  let folder: string;
  let open: OpenActivities;
  const said: string[] = [];
  const log = (message: string) => void said.push(message);
  beforeEach(() => {
    said.length = 0;
    folder = mkdtempSync(join(tmpdir(), 'longhaul-open-'));
    open = new OpenActivities(folder);
  });
  afterEach(() => rmSync(folder, { recursive: true }));

  it('are failed once, and dropped if the server has given them up', async () => {
    const taskToken = await beginActivity(temporal);
    open.open({ activity: 'one', taskToken });
    expect(await open.failPredecessors(temporal.client.activity, log)).toEqual(['one']);
    open.open({ activity: 'one', taskToken });
    expect(await open.failPredecessors(temporal.client.activity, log)).toEqual([]);
    expect({ said, left: readdirSync(folder) }).toEqual({ said: [], left: [] });
  });

  it('are dropped if another server started them, as after the loss of a server’s database', async () => {
    open.open({ activity: 'ours', taskToken: await beginActivity(temporal) });
    open.open({ activity: 'lost', taskToken: await beginActivity(other) });
    open.open({ activity: 'unreadable', taskToken: Buffer.from('no token').toString('base64') });
    expect(await open.failPredecessors(temporal.client.activity, log)).toEqual(['ours']);
    expect({ said, left: readdirSync(folder) }).toEqual({ said: [], left: [] });
  });

  it('are logged and kept for the next start if the server does not answer', async () => {
    open.open({ activity: 'one', taskToken: await beginActivity(temporal) });
    const connection = openConnection({ address: `127.0.0.1:${await freePort()}` });
    try {
      const nobody = new Client({ connection });
      expect(await open.failPredecessors(nobody.activity, log)).toEqual([]);
    } finally {
      await connection.close();
    }
    expect(said).toEqual([expect.stringMatching(/^activity .* must wait for its heartbeat time-out: ./)]);
    expect(await open.failPredecessors(temporal.client.activity, log)).toEqual(['one']);
    expect(readdirSync(folder)).toEqual([]);
  });

  it('do not keep a worker from starting if their folder cannot be read', async () => {
    rmSync(folder, { recursive: true });
    expect(await open.failPredecessors(temporal.client.activity, log)).toEqual([]);
    expect(said).toEqual([expect.stringContaining('ENOENT')]);
    open = new OpenActivities(folder);
  });
});
