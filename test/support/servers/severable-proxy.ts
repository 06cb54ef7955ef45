// A TCP proxy that can be cut. The server then sees the client disappear, although the client still runs.
import { connect, createServer, type Socket } from 'node:net';

export interface SeverableProxy {
  /** `host:port` to connect to instead of the target. */
  address: string;
  /** Breaks all connections and refuses new ones until `restore`. */
  sever(): void;
  restore(): void;
  /** At the next reply, breaks its connection instead of passing the reply on. Resolves when a connection was broken. */
  loseNextReply(): Promise<void>;
  /** Same, of the next request, which the server never sees. */
  loseNextRequest(): Promise<void>;
  stop(): Promise<void>;
}

/**
 * `target`: `host:port` of the server, which need not run yet. `loses`: asked at each reply; true: the reply is lost, with its connection.
 * `at`: the proxy's own address; absent: a free port.
 */
export async function startSeverableProxy(
  target: string,
  loses: () => boolean = () => false,
  at = '127.0.0.1:0',
): Promise<SeverableProxy> {
  const [host, port] = target.split(':');
  const open = new Set<Socket>();
  const pairs = new Map<Socket, Socket>();
  let severed = false;
  const server = createServer((incoming) => {
    if (severed) return incoming.destroy();
    const outgoing = connect({ host: host ?? '127.0.0.1', port: Number(port) });
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
    pairs.set(incoming, outgoing);
    incoming.on('close', () => pairs.delete(incoming));
    // Before the pipe, so that nothing of the reply passes.
    outgoing.on('data', () => loses() && incoming.destroy());
    incoming.pipe(outgoing).pipe(incoming);
    return undefined;
  });
  await new Promise<void>((resolve) => server.listen(Number(at.split(':')[1]), '127.0.0.1', resolve));
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('the proxy has no port');
  const breakAll = (): void => {
    for (const socket of open) socket.destroy();
  };
  return {
    address: `127.0.0.1:${address.port}`,
    sever: () => {
      severed = true;
      breakAll();
    },
    restore: () => {
      severed = false;
    },
    loseNextReply: () =>
      new Promise((resolve) => {
        for (const [incoming, outgoing] of pairs) {
          outgoing.unpipe(incoming);
          outgoing.once('data', () => {
            incoming.destroy();
            resolve();
          });
          outgoing.resume();
        }
      }),
    loseNextRequest: () =>
      new Promise((resolve) => {
        for (const [incoming, outgoing] of pairs) {
          incoming.unpipe(outgoing);
          incoming.once('data', () => {
            incoming.destroy();
            resolve();
          });
          incoming.resume();
        }
      }),
    stop: async () => {
      breakAll();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
