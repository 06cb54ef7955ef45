// An environment server as a bad network or a bad day shows it. Its crashes and its freezing are with the other processes.
// Each fault loses a call at most twice at the same place of an episode: a third loss would be charged to the episode (R25),
// whose outcome then is another one by right.
import type { BreakableProxy } from '../../support/servers/breakable-proxy.js';
import { type Fault, lasting, type World } from './fault.js';

/** The proxy before the server is in another mode than `pass`. */
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
