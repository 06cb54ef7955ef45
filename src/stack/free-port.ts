// Ports on 127.0.0.1.
import { randomInt } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';

/** Below it are the well-known services. */
const lowest = 10_240;
/** Number of random ports to try before the system chooses one. */
const tries = 100;

/**
 * A free port. Where possible, not one that the system gives to outgoing connections: one of them could take it in the seconds until its
 * server listens, and again at each restart.
 */
export async function freePort(): Promise<number> {
  const end = firstForConnections();
  for (let left = end > lowest ? tries : 0; left > 0; left--) {
    const port = await listenOnce(randomInt(lowest, end));
    if (port !== null) return port;
  }
  const any = await listenOnce(0);
  if (any === null) throw new Error('no port on 127.0.0.1 is free');
  return any;
}

export async function isPortFree(port: number): Promise<boolean> {
  return (await listenOnce(port)) !== null;
}

/** 0 if the system does not say. */
function firstForConnections(): number {
  try {
    return Number(/^\d+/.exec(readFileSync('/proc/sys/net/ipv4/ip_local_port_range', 'utf8'))?.[0] ?? 0);
  } catch {
    return 0;
  }
}

function listenOnce(port: number): Promise<number | null> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EADDRINUSE' || error.code === 'EACCES') resolve(null);
      else reject(error);
    });
    server.listen({ host: '127.0.0.1', port, exclusive: true }, () => {
      const address = server.address();
      const bound = typeof address === 'object' && address ? address.port : port;
      server.close(() => resolve(bound));
    });
  });
}
