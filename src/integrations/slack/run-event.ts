// The events of a run as plain data, for notifications. They are made only from the records: any reader, at any time, gets the same events
// with the same ids, so each event is delivered once.
import type { Alert } from '../../rl/alerts.js';

import type { PassRate } from '../../spec/pass-rate.js';

/**
 * `started`, `checkpoint.120`, `evaluation.120.final`, `alert.tool_error_rate.crm.120`, `paused.3` (the control record),
 * `blocked.120.1f0e22ab` (hash of the reason), `ended.1.5f2c9a10` (the start, and which of its executions). Unique in a run; never used for
 * another event.
 */
export type RunEventId = string;

interface Happening {
  id: RunEventId;
  /** Time of the event's record, ISO 8601. */
  at: string;
}

export interface Link {
  label: string;
  url: string;
}

/** The event that begins a run's thread. */
export interface RunStarted extends Happening {
  kind: 'started';
  run: string;
  project: string;
  /** Where the run is: a Temporal address and namespace, or a team's name for its cluster. */
  cluster: string;
  /** What is trained: environment keys, or the name of a dataset. */
  task: string;
  model: string;
  /** `tool_use`, `browser_use`. */
  modality: string;
  /** Number of planned steps. */
  steps: number;
  /** Temporal UI, W&B, report. Only `http:` and `https:` links are shown. */
  links: Link[];
  /** The person who started the run. */
  who: string;
  /** The parent run and the step at which this run forked from it; null if it is no fork. */
  from: { run: string; step: number } | null;
}

export interface CheckpointKept extends Happening {
  kind: 'checkpoint';
  step: number;
  /** Store address and key of the checkpoint, without secrets. */
  place: string;
  sizeBytes: number;
}

export interface EnvironmentPassRate {
  environment: string;
  /** Shares from 0 to 1. */
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
  /** pass@k for the largest k; absent if the suite has one sample a task. */
  largest?: { k: number; rate: number };
  /** The previous evaluation of the same suite; null for the first one. */
  before: { step: number; passAt1: PassRate } | null;
  graded: number;
  unknown: number;
  environments: EnvironmentPassRate[];
  /** PNG of the pass rates so far (`chart-picture.ts`); null if there are none. */
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
  resumeWith: string;
}

export interface RunResumed extends Happening {
  kind: 'resumed';
}

/** Made from what the workflow reports, because no record shows it. */
export interface RunStandsStill extends Happening {
  /** `blocked`: the run waits until a person resumes it. `failing`: it still tries again by itself. */
  kind: 'blocked' | 'failing';
  step: number | null;
  reason: string;
  remedy: string;
}

export interface RunEnded extends Happening {
  kind: 'completed' | 'failed' | 'cancelled';
  step: number | null;
  steps: number;
  /** Pass rate of the last evaluation, as text; null if nothing was evaluated. */
  passAt1: string | null;
  /** `seconds`: from the first record to the last. `spend`: the cost as text, such as `12.40 USD`. */
  seconds: number;
  spend: string;
  /** Why the run failed or was cancelled, or which evaluation ended it. */
  reason: string | null;
  /** Command that resumes the run; null if no work is left. */
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

/** A run's current state, for the one message that is kept current. */
export interface RunStatusLine {
  /** ISO 8601. */
  at: string;
  step: number;
  steps: number;
  /** A phase as the run names it: `collect`, `update`, `paused`, … */
  phase: string;
  mood: 'running' | 'waiting' | 'completed' | 'failed' | 'cancelled';
  /** Pass rate of the newest evaluation, as a share. */
  passAt1: { step: number; value: PassRate } | null;
  /** Seconds until the last planned step. */
  etaSeconds: number | null;
  /** As text, such as `12.40 of 50 USD`. */
  spend: string;
  /** What a person should know, such as why the run waits or what fails. */
  note: string | null;
  /** Command that resumes the run; null if it continues without one. */
  resumeWith: string | null;
}
