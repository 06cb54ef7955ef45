// A TCP proxy in front of an environment server that can hold its bytes, answer nonsense, or break what is connected.
import { connect, createServer, type Socket } from 'node:net';

/** `hang`: nothing gets through, and nothing is lost. `garbage`: whatever the server says becomes nonsense, and then ends. */
export type ProxyMode = 'pass' | 'hang' | 'garbage' | 'refuse';

export interface BreakableProxy {
  /** `http://host:port` of the way through it. */
  url: string;
  /** `host:port`; until it is set, connections are refused. */
  target: string | null;
  mode: ProxyMode;
  /** Breaks what is connected now. */
  breakAll(): void;
  stop(): Promise<void>;
}

/** A WebSocket text frame that is no JSON; to an HTTP client, and to a WebSocket in its handshake, it is noise. */
const nonsense = Buffer.concat([Buffer.from([0x81, 9]), Buffer.from('}{\u0000nonse')]);

export async function startBreakableProxy(): Promise<BreakableProxy> {
  const open = new Set<Socket>();
  let mode: ProxyMode = 'pass';
  const server = createServer((incoming) => {
    const { target } = proxy;
    if (mode === 'refuse' || target === null) return void incoming.destroy();
    const [host = '', port] = target.split(':');
    const outgoing = connect({ host, port: Number(port) });
    for (const [one, other] of [
      [incoming, outgoing],
      [outgoing, incoming],
    ] as const) {
      open.add(one);
      one.setNoDelay(true);
      // A broken connection is what this is for; whoever used it sees it himself.
      one.on('error', () => other.destroy());
      one.on('close', () => {
        open.delete(one);
        other.destroy();
      });
    }
    incoming.on('data', (bytes) => {
      if (mode === 'garbage' && outgoing.connecting) incoming.end(nonsense);
      else outgoing.write(bytes);
    });
    outgoing.on('data', (bytes) => {
      if (mode === 'garbage') incoming.end(nonsense);
      else incoming.write(bytes);
    });
    if (mode === 'hang') for (const one of [incoming, outgoing]) one.pause();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('the proxy has no port');
  const proxy: BreakableProxy = {
    url: `http://127.0.0.1:${address.port}`,
    target: null,
    get mode() {
      return mode;
    },
    set mode(next) {
      mode = next;
      for (const one of open) one[next === 'hang' ? 'pause' : 'resume']();
    },
    breakAll: () => {
      for (const one of open) one.destroy();
    },
    stop: async () => {
      proxy.breakAll();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  return proxy;
}
