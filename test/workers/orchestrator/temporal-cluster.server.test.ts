// Which server the orchestrator asks about a run's owner.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { freePort } from '../../../src/stack/free-port.js';
import {
  clusterId,
  ownerState,
  recordedAddress,
} from '../../../src/workers/orchestrator/temporal-cluster.js';
import type { OwnerRecord } from '../../../src/spec/records/run-records.js';
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

describe('the owner of a run (R20)', () => {
  /** Starts a workflow on `server`; returns it with the owner record that the machine `host` would write. */
  async function owner(server: ConnectedTemporal, host: string) {
    const { client } = server;
    const workflowId = uniqueName('train/owned');
    const workflow = await client.workflow.start('trainingRun', {
      taskQueue: uniqueName('nobody'),
      workflowId,
    });
    const record: OwnerRecord = {
      schema: 'longhaul.owner/3',
      n: 1,
      address: recordedAddress(server.address, host),
      clusterId: await clusterId(client),
      namespace: 'default',
      workflowId,
      firstExecutionRunId: workflow.firstExecutionRunId,
      observed: { at: '2026-01-01T00:00:00.000Z', by: 'a test' },
    };
    return { record, workflow };
  }
  /** The owner's state, as found by the orchestrator of `temporal` on machine `host`. */
  const stateOf = (record: OwnerRecord, host: string) =>
    ownerState(
      record,
      { address: temporal.address, namespace: 'default', options: { address: temporal.address } },
      temporal.client,
      host,
    );

  it('on our own server is looked up there, even if the server’s address or the machine’s name has changed', async () => {
    const { record, workflow } = await owner(temporal, 'box-a');
    expect(await stateOf(record, 'box-a')).toBe('open');
    expect(await stateOf(record, 'box-a-renamed')).toBe('open');
    expect(await stateOf({ ...record, address: 'temporal.example:7233' }, 'box-a')).toBe('open');
    await workflow.terminate();
    expect(await stateOf(record, 'box-a')).toBe('closed');
  });

  it('on another server of the same machine is looked up at that server’s address', async () => {
    const { record, workflow } = await owner(other, 'box-a');
    expect(await stateOf(record, 'box-a')).toBe('open');
    await workflow.terminate();
    expect(await stateOf(record, 'box-a')).toBe('closed');
    expect(await stateOf({ ...record, workflowId: 'train/never-started' }, 'box-a')).toBe('unknown');
  });

  it('at a loopback address of another machine is unreachable: the server at this address here is a different one', async () => {
    const { record } = await owner(other, 'box-b');
    const address = recordedAddress(temporal.address, 'box-b');
    expect(await stateOf({ ...record, address }, 'box-a')).toBe('unreachable');
  });

  it('on a server that does not answer is unreachable', async () => {
    const { record } = await owner(other, 'box-a');
    const address = recordedAddress(`127.0.0.1:${await freePort()}`, 'box-a');
    expect(await stateOf({ ...record, address }, 'box-a')).toBe('unreachable');
  });

  it.each(['127.0.0.1:7233', 'localhost:7233', '[::1]:7233', '127.8.0.1:1'])(
    'is recorded with its machine’s name if its address is %s',
    (address) => {
      expect(recordedAddress(address, 'box')).toBe(`${address}@box`);
    },
  );

  it.each(['temporal.example:7233', '10.0.0.7:7233', '128.0.0.1:7233'])(
    'is recorded without a machine’s name if its address is %s',
    (address) => {
      expect(recordedAddress(address, 'box')).toBe(address);
    },
  );
});
