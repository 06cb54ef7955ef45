// Whom the orchestrator asks about an owner.
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
}, 60_000);
afterAll(() => Promise.all([temporal?.stop(), other?.stop()]));

describe('the owner of a run (R20)', () => {
  /** An open workflow on `server`, and the record of its claim as the machine `host` would write it. */
  async function owner(server: ConnectedTemporal, host: string) {
    const { client } = server;
    const workflowId = uniqueName('train/owned');
    const workflow = await client.workflow.start('trainingRun', {
      taskQueue: uniqueName('nobody'),
      workflowId,
    });
    const record: OwnerRecord = {
      schema: 'longhaul.owner/1',
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
  /** As the orchestrator of `temporal` on machine `host` finds out. */
  const stateOf = (record: OwnerRecord, host: string) =>
    ownerState(
      record,
      { address: temporal.address, namespace: 'default', options: { address: temporal.address } },
      temporal.client,
      host,
    );

  it('of the same server is asked there, whatever that server or its machine is called now', async () => {
    const { record, workflow } = await owner(temporal, 'box-a');
    expect(await stateOf(record, 'box-a')).toBe('open');
    expect(await stateOf(record, 'box-a-renamed')).toBe('open');
    expect(await stateOf({ ...record, address: 'temporal.example:7233' }, 'box-a')).toBe('open');
    await workflow.terminate();
    expect(await stateOf(record, 'box-a')).toBe('closed');
  });

  it('of another server on the same machine is asked at its address', async () => {
    const { record, workflow } = await owner(other, 'box-a');
    expect(await stateOf(record, 'box-a')).toBe('open');
    await workflow.terminate();
    expect(await stateOf(record, 'box-a')).toBe('closed');
    expect(await stateOf({ ...record, workflowId: 'train/never-started' }, 'box-a')).toBe('unknown');
  });

  it('of a loopback address on another machine is unreachable: the server that answers here is another one', async () => {
    const { record } = await owner(other, 'box-b');
    const address = recordedAddress(temporal.address, 'box-b');
    expect(await stateOf({ ...record, address }, 'box-a')).toBe('unreachable');
  });

  it('of a server that does not answer is unreachable', async () => {
    const { record } = await owner(other, 'box-a');
    const address = recordedAddress(`127.0.0.1:${await freePort()}`, 'box-a');
    expect(await stateOf({ ...record, address }, 'box-a')).toBe('unreachable');
  });

  it.each(['127.0.0.1:7233', 'localhost:7233', '[::1]:7233', '127.8.0.1:1'])(
    'is recorded with its machine for %s',
    (address) => {
      expect(recordedAddress(address, 'box')).toBe(`${address}@box`);
    },
  );

  it.each(['temporal.example:7233', '10.0.0.7:7233', '128.0.0.1:7233'])('is recorded as %s', (address) => {
    expect(recordedAddress(address, 'box')).toBe(address);
  });
});
