// What a fault is, and what it may use of the world around a run.
import type { BreakableProxy } from '../../support/servers/breakable-proxy.js';
import type { FaultProxy } from '../../support/servers/fault-proxy.js';
import type { LibcShim } from '../../support/preloads/libc-shim.js';
import type { Random } from '../random.js';
import type { OpenTrial } from '../trial.js';

/** `shim`: a machine on which libc-shim.ts works. `second-node`: a stack with two nodes. */
export type Need = 's3' | 'directory' | 'shim' | 'second-node';

export interface World {
  trial: OpenTrial;
  random: Random;
  /** Between the node and the environment server. */
  environments: BreakableProxy;
  /** Between the workers and the bucket; null where the store is a directory. */
  s3: FaultProxy | null;
  shim: LibcShim | null;
  /** The Temporal server: while `away`, it is not started again. */
  temporal: { away: boolean; databaseFile: string };
  /** The next engine that starts ends in the middle of a reply, after so many whole ones. */
  cutEngine(wholeReplies: number): void;
}

/** Ends the fault. Called once, in any case. */
export type Undo = () => Promise<void> | void;

export interface Fault {
  name: string;
  /** In words: what happens, and what ends it. */
  does: string;
  undone: string;
  needs: readonly Need[];
  /** False for what happens in a moment; else it lasts as long as the schedule says. */
  lasts: boolean;
  /** Seconds after its end within which another step must be committed, or the run be over; several times what it takes. */
  recoversWithinS: number;
  /** Null where the run was over before it could strike. */
  strike(world: World): Promise<Undo | null>;
}

export const nothingToUndo: Undo = () => undefined;
/** What the supervisor fixes: a process starts in 1–3 s, and what the server had handed it may wait for a heartbeat of 10 s. */
export const restartS = 60;

/** What most faults have in common: they need nothing, and the supervisor mends them. */
const ordinary = { needs: [], recoversWithinS: restartS };
export const momentary = { ...ordinary, lasts: false };
export const lasting = { ...ordinary, lasts: true };
