// A TCP proxy that loses a share of a server's answers, with their connections: the server has done what was asked.
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

export interface LossyProxy {
  url: string;
  lost: number;
  close(): Promise<void>;
}

/** `random`: uniform in [0, 1). */
export async function startLossyProxy(
  target: string,
  share: number,
  random: () => number,
): Promise<LossyProxy> {
  const { hostname, port } = new URL(target);
  const open = new Set<Socket>();
  const server = createServer((incoming) => {
    const outgoing = connect({ host: hostname, port: Number(port) });
    for (const [one, other] of [
      [incoming, outgoing],
      [outgoing, incoming],
    ] as const) {
      open.add(one);
      one.setNoDelay(true);
      one.on('error', () => other.destroy());
      one.on('close', () => {
        open.delete(one);
        other.destroy();
      });
    }
    incoming.pipe(outgoing);
    outgoing.on('data', (bytes) => {
      if (random() >= share) return void incoming.write(bytes);
      proxy.lost += 1;
      incoming.destroy();
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const proxy: LossyProxy = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    lost: 0,
    close: async () => {
      for (const socket of open) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
  return proxy;
}
