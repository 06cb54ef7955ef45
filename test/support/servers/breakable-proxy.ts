// A TCP proxy before an environment server that can hold back bytes, answer nonsense, or break connections.
import { connect, createServer, type Socket } from 'node:net';

/** `hang`: no bytes pass, but none are lost. `garbage`: the server's next answer is replaced by nonsense, and the connection ends. */
export type ProxyMode = 'pass' | 'hang' | 'garbage' | 'refuse';

export interface BreakableProxy {
  /** `http://host:port` of the proxy. */
  url: string;
  /** `host:port` of the server. Until it is set, connections are refused. */
  target: string | null;
  mode: ProxyMode;
  /** Breaks all open connections. */
  breakAll(): void;
  stop(): Promise<void>;
}

/** A WebSocket text frame that is not JSON. For an HTTP client, or during a WebSocket handshake, it is invalid, too. */
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
      // Breaking connections is the purpose, so the error is ignored here; the client sees the error itself.
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
