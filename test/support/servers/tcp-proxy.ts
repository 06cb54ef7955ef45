// A TCP proxy before a server. It can break connections, lose single messages, hold back all bytes, and answer nonsense.
import { connect, createServer, type Socket } from 'node:net';

/**
 * `hang`: no bytes pass, but none are lost. `garbage`: the server's next answer is replaced by nonsense, and the connection ends. `refuse`:
 * all connections break, and new ones are refused.
 */
export type TcpProxyMode = 'pass' | 'hang' | 'garbage' | 'refuse';

export interface TcpProxy {
  /** `host:port` to connect to instead of the server's. */
  address: string;
  /** `http://` and the address. */
  url: string;
  /** `host:port` of the server, which need not run yet. While it is null, connections are refused. */
  target: string | null;
  mode: TcpProxyMode;
  /** Breaks all open connections. */
  breakAll(): void;
  /** Breaks each open connection at its next reply, which the client never sees. Resolves when the first one was broken. */
  loseNextReply(): Promise<void>;
  /** Breaks each open connection at its next request, which the server never sees. Resolves when the first one was broken. */
  loseNextRequest(): Promise<void>;
  stop(): Promise<void>;
}

export interface TcpProxyOptions {
  /** Called at each reply; if it returns true, the reply and its connection are lost. */
  losesReply?: () => boolean;
  /** The proxy's own address; default: a free port. */
  at?: string;
}

interface Link {
  incoming: Socket;
  outgoing: Socket;
  /** Called when the message of this kind was lost; absent: the next one passes. */
  losing: { request?: () => void; reply?: () => void };
}

/** A WebSocket text frame that is not JSON. For an HTTP client, or during a WebSocket handshake, it is invalid, too. */
const nonsense = Buffer.concat([Buffer.from([0x81, 9]), Buffer.from('}{\u0000nonse')]);

export async function startTcpProxy(
  target: string | null = null,
  { losesReply = () => false, at = '127.0.0.1:0' }: TcpProxyOptions = {},
): Promise<TcpProxy> {
  const links = new Set<Link>();
  let mode: TcpProxyMode = 'pass';
  const server = createServer((incoming) => {
    if (mode === 'refuse' || proxy.target === null) return void incoming.destroy();
    const [host = '', port] = proxy.target.split(':');
    const link: Link = { incoming, outgoing: connect({ host, port: Number(port) }), losing: {} };
    links.add(link);
    incoming.on('close', () => links.delete(link));
    passBytes(link, () => mode, losesReply);
    if (mode === 'hang') pauseOrResume(link, mode);
  });
  await new Promise<void>((resolve) => server.listen(Number(at.split(':')[1]), '127.0.0.1', resolve));
  const own = server.address();
  if (own === null || typeof own === 'string') throw new Error('the proxy has no port');
  const address = `127.0.0.1:${own.port}`;
  const breakAll = (): void => links.forEach(({ incoming }) => incoming.destroy());
  const loseNext = (kind: keyof Link['losing']): Promise<void> =>
    new Promise((resolve) => {
      for (const { losing } of links) losing[kind] = resolve;
    });
  const proxy: TcpProxy = {
    ...{ address, url: `http://${address}`, target, breakAll },
    get mode() {
      return mode;
    },
    set mode(next) {
      mode = next;
      if (mode === 'refuse') breakAll();
      for (const link of links) pauseOrResume(link, mode);
    },
    loseNextReply: () => loseNext('reply'),
    loseNextRequest: () => loseNext('request'),
    stop: async () => {
      breakAll();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  return proxy;
}

/** Passes the bytes of a connection on in both directions. When one side ends, the other ends. */
function passBytes(
  { incoming, outgoing, losing }: Link,
  mode: () => TcpProxyMode,
  losesReply: () => boolean,
): void {
  for (const [one, other] of [
    [incoming, outgoing],
    [outgoing, incoming],
  ] as const) {
    one.setNoDelay(true);
    // Breaking connections is the purpose, so the error is ignored here; the client sees the error itself.
    one.on('error', () => other.destroy());
    one.on('close', () => other.destroy());
  }
  incoming.on('data', (bytes) => {
    if (losing.request) {
      incoming.destroy();
      losing.request();
    } else if (mode() === 'garbage' && outgoing.connecting) incoming.end(nonsense);
    else outgoing.write(bytes);
  });
  outgoing.on('data', (bytes) => {
    if (losing.reply || losesReply()) {
      incoming.destroy();
      losing.reply?.();
    } else if (mode() === 'garbage') incoming.end(nonsense);
    else incoming.write(bytes);
  });
}

function pauseOrResume({ incoming, outgoing }: Link, mode: TcpProxyMode): void {
  for (const one of [incoming, outgoing]) one[mode === 'hang' ? 'pause' : 'resume']();
}
