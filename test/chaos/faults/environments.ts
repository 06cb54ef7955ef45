// Faults of an environment server or of the network before it. Its crashes and freezes are in processes.ts. Each fault loses a call at most
// twice at the same place of an episode. A third loss would be charged to the episode (R25), and its outcome would rightly differ.
import type { BreakableProxy } from '../../support/servers/breakable-proxy.js';
import { type Fault, lasting, type World } from './fault.js';

/** A fault that sets the proxy before the server to another mode than `pass`. */
const inMode =
  (mode: BreakableProxy['mode'], breaks = false) =>
  async ({ environments }: World) => {
    environments.mode = mode;
    if (breaks) environments.breakAll();
    return () => {
      environments.mode = 'pass';
    };
  };

export const environmentFaults: readonly Fault[] = [
  {
    ...lasting,
    name: 'environments-hang',
    does: 'no byte gets through to the environment server or back, and every connection stays open',
    undone: 'the bytes go on where they were',
    strike: inMode('hang'),
  },
  {
    ...lasting,
    name: 'environments-answer-garbage',
    does: 'whatever the environment server says arrives as noise, to calls, handshakes and health checks',
    undone: 'new connections are sound',
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
    does: 'every socket to the environment server breaks, and no new one is let in',
    undone: 'new connections are let in',
    strike: inMode('refuse', true),
  },
];
