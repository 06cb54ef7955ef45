// The events of a run as plain data, for notifications. Made from the records alone: the same records give the same events with the same
// ids, for any reader at any time, so that each is delivered once.
import type { Alert } from '../../rl/alerts.js';

import type { PassRate } from '../../spec/pass-rate.js';

/**
 * `started`, `checkpoint.120`, `evaluation.120.final`, `alert.tool_error_rate.crm.120`, `paused.3` (the control record's number),
 * `blocked.120.1f0e22ab` (of what it waits for), `ended.1.5f2c9a10` (the start’s number, and which of its executions). Unique in a run, and never reused for something else.
 */
export type RunEventId = string;

interface Happening {
  id: RunEventId;
  /** ISO 8601, from the record of the event. */
  at: string;
}

export interface Link {
  label: string;
  url: string;
}

/** The thread of a run begins with it. */
export interface RunStarted extends Happening {
  kind: 'started';
  run: string;
  project: string;
  /** Where it runs: a Temporal address and namespace, or the name a team gave its cluster. */
  cluster: string;
  /** What is trained: environment keys or a data set's name. */
  task: string;
  model: string;
  /** `tool_use`, `browser_use`. */
  modality: string;
  /** Planned steps. */
  steps: number;
  /** Temporal UI, W&B, report; only `http:` and `https:`, others are not shown. */
  links: Link[];
  /** Who started it. */
  who: string;
  /** The run, and its step, that this one goes on from. */
  from: { run: string; step: number } | null;
}

export interface CheckpointKept extends Happening {
  kind: 'checkpoint';
  step: number;
  /** Store address and key of the checkpoint; no secret is in it. */
  place: string;
  sizeBytes: number;
}

export interface EnvironmentPassRate {
  environment: string;
  /** Shares, 0..1. */
  passAt1: PassRate;
  toolErrorRate: number | null;
  graded: number;
  unknown: number;
}

export interface EvaluationDone extends Happening {
  kind: 'evaluation';
  step: number;
  suite: string;
  passAt1: PassRate;
  /** The previous evaluation of the same suite; null for the first. */
  before: { step: number; passAt1: PassRate } | null;
  graded: number;
  unknown: number;
  environments: EnvironmentPassRate[];
  /** PNG of the pass rates so far (`chart-picture.ts`); null if there are none to show. */
  chart: Uint8Array | null;
}

export interface AlertRaised extends Happening {
  kind: 'alert';
  step: number;
  alert: Alert;
}

export interface RunPaused extends Happening {
  kind: 'paused';
  reason: string | null;
  /** Command that resumes the run. */
  resumeWith: string;
}

export interface RunResumed extends Happening {
  kind: 'resumed';
}

/** Comes from the workflow; no record says it. */
export interface RunStandsStill extends Happening {
  /** `blocked`: until a person resumes it; `failing`: it tries again without help. */
  kind: 'blocked' | 'failing';
  step: number | null;
  reason: string;
  remedy: string;
}

export interface RunEnded extends Happening {
  kind: 'completed' | 'failed' | 'cancelled';
  step: number | null;
  steps: number;
  /** The last evaluation's rate, as text; null if nothing was evaluated. */
  passAt1: string | null;
  /** From first to last record, and what it cost in words, `12.40 USD`. */
  seconds: number;
  spend: string;
  /** Why it failed or was cancelled, or which evaluation ended it. */
  reason: string | null;
  /** Command that resumes the run; null if nothing is left to do. */
  resumeWith: string | null;
  links: Link[];
}

export type RunEvent =
  | RunStarted
  | CheckpointKept
  | EvaluationDone
  | AlertRaised
  | RunPaused
  | RunResumed
  | RunStandsStill
  | RunEnded;

/** The run's current standing, for the one message that is kept current. */
export interface RunStatusLine {
  /** ISO 8601. */
  at: string;
  step: number;
  steps: number;
  /** `collect`, `update`, `paused`, …, as the run names its phases. */
  phase: string;
  mood: 'running' | 'waiting' | 'completed' | 'failed' | 'cancelled';
  /** Share, of the newest evaluation. */
  passAt1: { step: number; value: PassRate } | null;
  /** Until the last planned step. */
  etaSeconds: number | null;
  /** In words, `12.40 of 50 USD`. */
  spend: string;
  /** What a person should know: why it waits, what is wrong. */
  note: string | null;
  /** Command that resumes the run; null if it goes on without one. */
  resumeWith: string | null;
}
