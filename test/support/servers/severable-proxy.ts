// A TCP proxy that can be cut: to the server the client behind it is gone, while the client itself lives on.
import { connect, createServer, type Socket } from 'node:net';

export interface SeverableProxy {
  /** `host:port` to connect to instead of the target. */
  address: string;
  /** Breaks all connections and refuses new ones until `restore`. */
  sever(): void;
  restore(): void;
  /** Breaks each connection that is open now instead of handing on what comes back next; resolves when one is broken. */
  loseNextReply(): Promise<void>;
  stop(): Promise<void>;
}

/** `target`: `host:port`. It need not serve yet. */
export async function startSeverableProxy(target: string): Promise<SeverableProxy> {
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
      // A broken connection is what this is for; whoever used it sees it himself.
      one.on('error', () => other.destroy());
      one.on('close', () => {
        open.delete(one);
        other.destroy();
      });
    }
    pairs.set(incoming, outgoing);
    incoming.on('close', () => pairs.delete(incoming));
    incoming.pipe(outgoing).pipe(incoming);
    return undefined;
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
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
    stop: async () => {
      breakAll();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
