// Faults of an S3 service, simulated between the workers and a real server. The product must settle an unclear answer by reading (R3).
import type { Fault as Broken } from '../../support/servers/fault-proxy.js';
import type { Random } from '../random.js';
import type { Fault } from './fault.js';

interface Request {
  method: string;
  url: string;
}

const any = (): boolean => true;
const writes = ({ method }: Request): boolean => method === 'PUT' || method === 'POST';

interface Disturbance {
  name: string;
  does: string;
  /** Share of the matching requests that is disturbed. */
  share: number;
  matches?: (request: Request) => boolean;
  /** Maximum number of disturbed requests, because each of them costs a client its whole time-out. */
  atMost?: number;
  recoversWithinS?: number;
  breaks: (random: Random) => Broken;
}

const answer = (status: number, code: string): Broken => ({ kind: 'answer', status, code });

const disturbances: readonly Disturbance[] = [
  {
    name: 's3-latency',
    does: 'every request reaches the service 0.1–1 s late',
    share: 1,
    breaks: (random) => ({ kind: 'delay', ms: 100 + random.below(900) }),
  },
  {
    name: 's3-slow',
    does: 'every reply comes back at 640 KiB/s',
    share: 1,
    breaks: () => ({ kind: 'trickle', everyMs: 50, bytes: 32 * 1024 }),
  },
  {
    name: 's3-reset',
    does: 'half of all connections break before the service has seen the request',
    share: 0.5,
    breaks: () => ({ kind: 'reset' }),
  },
  {
    name: 's3-times-out',
    does: 'two requests are carried out and never answered',
    share: 0.3,
    atMost: 2,
    // A client waits 30 s on a silent connection.
    recoversWithinS: 150,
    breaks: () => ({ kind: 'hang' }),
  },
  {
    name: 's3-answers-500',
    does: 'half of all requests are answered with 500 and not carried out',
    share: 0.5,
    breaks: () => answer(500, 'InternalError'),
  },
  {
    name: 's3-answers-503',
    does: 'every request is answered with 503 and not carried out: the service is down',
    share: 1,
    breaks: () => answer(503, 'ServiceUnavailable'),
  },
  {
    name: 's3-answers-429',
    does: 'two thirds of all requests are answered with 429',
    share: 0.67,
    breaks: () => answer(429, 'TooManyRequests'),
  },
  {
    name: 's3-stores-then-fails',
    does: 'every write is carried out, but answered with 500 or a broken connection',
    share: 1,
    matches: writes,
    breaks: (random) =>
      random.next() < 0.5
        ? { kind: 'answerAfter', status: 500, code: 'InternalError' }
        : { kind: 'loseReply' },
  },
  {
    name: 's3-full',
    does: 'every write is answered with 507, as by a service without free space; reads work',
    share: 1,
    matches: writes,
    breaks: () => answer(507, 'InsufficientStorage'),
  },
];

export const objectStoreFaults: readonly Fault[] = disturbances.map(
  ({ name, does, share, matches = any, atMost = Infinity, recoversWithinS = 90, breaks }) => ({
    ...{ name, does, recoversWithinS },
    undone: 'the service answers normally',
    needs: ['s3'],
    lasts: true,
    strike: async ({ s3, random }) => {
      let left = atMost;
      s3?.plan((request) => {
        if (left === 0 || !matches(request) || random.next() >= share) return null;
        left -= 1;
        return breaks(random);
      });
      return () => s3?.plan(() => null);
    },
  }),
);
