// The type of a fault, and the parts of a run that a fault may disturb.
import type { FaultProxy } from '../../support/servers/fault-proxy.js';
import type { TcpProxy } from '../../support/servers/tcp-proxy.js';
import type { LibcShim } from '../../support/preloads/libc-shim.js';
import type { Random } from '../random.js';
import type { OpenTrial } from '../trial.js';

/** Requirements of a fault. `shim`: a machine on which libc-shim.ts works. `second-node`: a stack with two nodes. */
export type Need = 's3' | 'directory' | 'shim' | 'second-node';

export interface World {
  trial: OpenTrial;
  random: Random;
  /** The proxy between the node and the environment server. */
  environments: TcpProxy;
  /** The proxy between the workers and the bucket; null if the store is a directory. */
  s3: FaultProxy | null;
  shim: LibcShim | null;
  /** State of the Temporal server. While `away` is set, the server does not start again. */
  temporal: { away: boolean; databaseFile: string };
  /** Makes the next engine that starts die in the middle of a reply, after `wholeReplies` complete ones. */
  cutEngine(wholeReplies: number): void;
}

/** Ends the fault. It is always called, exactly once. */
export type Undo = () => Promise<void> | void;

export interface Fault {
  name: string;
  /** In words: `does` says what happens, and `undone` says what ends it. */
  does: string;
  undone: string;
  needs: readonly Need[];
  /** False if the fault takes only a moment. Otherwise it lasts as long as the schedule says. */
  lasts: boolean;
  /** Within this many seconds after the fault's end, the run must commit another step or end. Several times the usual recovery. */
  recoversWithinS: number;
  /** Starts the fault; null if the run was over before that. */
  strike(world: World): Promise<Undo | null>;
}

export const nothingToUndo: Undo = () => undefined;
/**
 * For faults that the supervisor fixes. A process starts in 1–3 s, and a task that its predecessor had received may wait for a heartbeat
 * time-out of 10 s.
 */
export const restartS = 60;

/** Most faults need nothing, and the supervisor fixes them. */
const ordinary = { needs: [], recoversWithinS: restartS };
export const momentary = { ...ordinary, lasts: false };
export const lasting = { ...ordinary, lasts: true };
