// Faults of an environment server or of the network before it. Its crashes and freezes are in processes.ts. Each fault loses a call at most
// twice at the same place of an episode. A third loss would be charged to the episode (R25), and its outcome would rightly differ.
import type { TcpProxyMode } from '../../support/servers/tcp-proxy.js';
import { type Fault, lasting, type World } from './fault.js';

/** A fault that sets the proxy before the server to another mode than `pass`. */
const inMode =
  (mode: TcpProxyMode) =>
  async ({ environments }: World) => {
    environments.mode = mode;
    return () => {
      environments.mode = 'pass';
    };
  };

export const environmentFaults: readonly Fault[] = [
  {
    ...lasting,
    name: 'environments-hang',
    does: 'no byte passes between workers and the environment server, but all connections stay open',
    undone: 'the bytes pass again',
    strike: inMode('hang'),
  },
  {
    ...lasting,
    name: 'environments-answer-garbage',
    does: 'all answers of the environment server arrive as noise: to calls, handshakes and health checks',
    undone: 'new connections work',
    strike: inMode('garbage'),
  },
  {
    ...lasting,
    name: 'environments-lose-sockets',
    does: 'every socket to the environment server breaks, at the beginning and at the end',
    undone: 'by itself',
    strike: async ({ environments }) => {
      environments.breakAll();
      return () => environments.breakAll();
    },
  },
  {
    ...lasting,
    name: 'environments-refuse',
    does: 'every socket to the environment server breaks, and new connections are refused',
    undone: 'new connections are accepted',
    strike: inMode('refuse'),
  },
];
