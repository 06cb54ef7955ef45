// Ports on 127.0.0.1.
import { createServer } from 'node:net';

/** A port that nobody listens on now; `preferred` where it is free. */
export async function freePort(preferred = 0): Promise<number> {
  const port = await listenOnce(preferred);
  if (port !== null) return port;
  const any = await listenOnce(0);
  if (any === null) throw new Error('no port on 127.0.0.1 is free');
  return any;
}

export async function isPortFree(port: number): Promise<boolean> {
  return (await listenOnce(port)) !== null;
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
