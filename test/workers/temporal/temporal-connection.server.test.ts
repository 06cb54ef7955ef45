import { once } from 'node:events';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { openConnection } from '../../../src/workers/temporal/temporal-connection.js';

let server: Server | undefined;

afterEach(() => server?.close());

describe('a connection of a client', () => {
  it('may be closed between two tries of a call, which then ends as cancelled', async () => {
    const { address, hungUp } = await serverThatHangsUp();
    const connection = openConnection({ address });
    const call = connection.workflowService.getSystemInfo({}).then(
      () => 'answered',
      (error: unknown) => String(error),
    );
    await hungUp;
    await connection.close();
    // Without `endCallsAfterClose` the retry throws in a timer, and Vitest reports an uncaught error.
    expect(await call).toMatch(/CANCELLED.*Channel has been shut down/);
  });
});

/** A server that accepts connections and closes them, so that each call fails as unavailable and is retried. */
async function serverThatHangsUp(): Promise<{ address: string; hungUp: Promise<void> }> {
  const ending = createServer((socket) => socket.destroy()).listen(0, '127.0.0.1');
  server = ending;
  await once(ending, 'listening');
  const { port } = ending.address() as AddressInfo;
  return { address: `127.0.0.1:${port}`, hungUp: once(ending, 'connection').then(() => undefined) };
}
