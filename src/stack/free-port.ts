// Finds free ports on 127.0.0.1.
import { randomInt } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';

/** Lowest port to choose; well-known services use lower ports. */
const lowest = 10_240;
/** Number of random ports to try before the system chooses one. */
const tries = 100;

/**
 * A free port, if possible outside the range that the system uses for outgoing connections. An outgoing connection could take the port
 * before our server listens, or while the server restarts.
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

/** The lowest port that the system uses for outgoing connections; 0 if it is not known. */
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
