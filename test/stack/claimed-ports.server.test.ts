// Stacks that start at the same moment: a port belongs to one stack from its choice until the end of the stack.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { createInterface } from 'node:readline';
import { afterEach, describe, expect, it } from 'vitest';
import { ClaimedPorts } from '../../src/stack/claimed-ports.js';
import { freePort } from '../../src/stack/free-port.js';
import { choosePorts } from '../../src/stack/stack.js';

const fixture = new URL('../workers/fixtures/claim-port.mjs', import.meta.url).pathname;
const processes: ChildProcess[] = [];
const stacks: ClaimedPorts[] = [];
afterEach(async () => {
  for (const stack of stacks.splice(0)) stack.release();
  await Promise.all(
    processes.splice(0).map(async (child) => {
      if (child.exitCode !== null || child.signalCode !== null) return;
      child.stdin?.end();
      await once(child, 'exit');
    }),
  );
});

function stack(said: string[] = []): ClaimedPorts {
  const ports = new ClaimedPorts((message) => said.push(message));
  stacks.push(ports);
  return ports;
}

/** Starts a process that chooses a port near `port`, as a stack does. */
async function startsNear(port: number): Promise<{ port: number; said: string[]; child: ChildProcess }> {
  const child = spawn(process.execPath, [fixture, String(port)], { stdio: ['pipe', 'pipe', 'inherit'] });
  processes.push(child);
  const [line] = (await once(createInterface({ input: child.stdout }), 'line')) as [string];
  return { ...(JSON.parse(line) as { port: number; said: string[] }), child };
}

describe('stacks that start at the same moment', () => {
  it('get different ports; a stack that does not get the usual port logs the port that it has', async () => {
    const usual = await freePort();
    const started = await Promise.all(Array.from({ length: 4 }, () => startsNear(usual)));
    expect(new Set(started.map(({ port }) => port)).size).toBe(4);
    const [first, ...others] = started.sort((a, b) => a.port - b.port);
    expect(first).toMatchObject({ port: usual, said: [] });
    for (const { port, said } of others)
      expect(said).toEqual([`port ${usual} is taken; the Temporal server uses ${port}`]);
  });
});

describe('a claimed port', () => {
  it('is refused to another stack that asks for exactly this port, until it is released', async () => {
    const [one, two] = [stack(), stack()];
    const port = await one.any();
    await expect(two.exactly('Temporal UI', port)).rejects.toThrow(
      `port ${port} for the Temporal UI is taken by another process`,
    );
    one.release();
    expect(await two.exactly('Temporal UI', port)).toBe(port);
  });

  it('is free again after its stack was killed', async () => {
    const usual = await freePort();
    const { port, child } = await startsNear(usual);
    expect(port).toBe(usual);
    child.kill('SIGKILL');
    await once(child, 'exit');
    expect(await stack().near('Temporal server', usual)).toBe(usual);
  });

  it('is never a port on which a server listens', async () => {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    const taken = typeof address === 'object' && address ? address.port : 0;
    const said: string[] = [];
    const port = await stack(said).near('Temporal UI', taken);
    expect(port).toBeGreaterThan(taken);
    expect(said).toEqual([`port ${taken} is taken; the Temporal UI uses ${port}`]);
    await expect(stack().exactly('Temporal UI', taken)).rejects.toThrow('omit the option');
    server.close();
  });
});

describe('the environment server of a stack', () => {
  const scripts = { environments: ['server'] };

  it('has the port of the last start, or the start is refused: its runs keep the address', async () => {
    const other = stack();
    const [temporal, ui, port] = [await other.any(), await other.any(), await other.any()];
    const before = {
      temporal: `127.0.0.1:${temporal}`,
      ...{ ui: `http://127.0.0.1:${ui}`, environments: `http://127.0.0.1:${port}` },
    };
    await expect(choosePorts({ scripts }, before, stack())).rejects.toThrow(
      `port ${port}, where this stack’s environment server was and its runs play, is taken: free it`,
    );
    other.release();
    expect(await choosePorts({ scripts }, before, stack())).toEqual({
      ...{ temporalPort: temporal, uiPort: ui, environmentPort: port },
    });
  });

  it('has any free port at the first start', async () => {
    const { environmentPort } = await choosePorts({ scripts }, null, stack());
    const { environmentPort: next } = await choosePorts({ scripts }, null, stack());
    expect(environmentPort).toBeGreaterThan(0);
    expect(next).not.toBe(environmentPort);
  });
});
