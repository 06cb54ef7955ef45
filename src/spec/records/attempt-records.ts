// What attempts leave behind as evidence (R9): what they began, what had broken before them, and what that cost.
import type { Digest } from './records.js';

/** Evidence for checkers, never truth (R9): keys whose episodes this attempt is about to start. */
export interface AttemptRecord {
  /** Version 2 has `discarded`. */
  schema: 'longhaul.attempt/1' | 'longhaul.attempt/2';
  activity: string;
  attempt: string;
  n: number;
  starts: string[];
  /** This attempt's starts that it left alone because another had finished them. Earlier versions wrote it. */
  not_begun?: string[];
  /** Episodes that this attempt sampled to their ends, and whose record is another's. */
  discarded?: string[];
  /** What the engine computed otherwise than the stored record says, with both results (R19). */
  failures?: { verb: string; input: Digest; message: string }[];
  observed: AttemptObserved;
}

export interface AttemptObserved {
  node: string;
  pid: number;
  at: string;
  /** What had broken before this attempt worked. */
  recoveries?: Recovery[];
  /** Seconds in which all that was under way waited for an environment or the store. */
  waited_seconds?: number;
}

/** `placed`: the run came to this node; `engine_shared`: another run had changed the engine's state. Neither is a fault. */
export type RecoveryCause =
  | 'engine_exit'
  | 'worker_restart'
  | 'orchestrator_restart'
  | 'node_lost'
  | 'node_drained'
  | 'timeout'
  | 'store'
  | 'environment'
  | 'temporal'
  | 'diverged'
  | 'error'
  | 'placed'
  | 'engine_shared';

/** Work of an attempt that nobody can use again. */
export interface LostWork {
  /** Mean over what was under way of the time since it had last left something. */
  seconds: number;
  /** Sampled tokens. */
  tokens: number;
  episodes: number;
}

/** One failure and what it took to work again. Durations are of one machine's clock. */
export interface Recovery {
  cause: RecoveryCause;
  /** Names what happened: attempts that were ended by the same death name the same. */
  event: string;
  lost: LostWork;
  /** From the failure until somebody knew of it. */
  detection_seconds: number;
  /** From the failure until work went on: detection, the next try, restore and replay. */
  down_seconds: number;
  /** A state that was made to be held again: from where, of which step, and how long that took. */
  restore?: { from: RestoreSource; step: number; bytes: number; seconds: number };
  /** Logged updates that were applied after it. */
  replay?: { steps: number; seconds: number };
}

export type RestoreSource = 'disk' | 'store' | 'base' | 'held';
