// The types that workflows and activities exchange. Workflows import types from here only; the one value is for activities. All payloads
// are small (< 10 KB): digests and figures, never data.
import type { BudgetLimit, Spent } from '../spec/budget.js';
import type { ControlChange, ControlState } from '../spec/records/control-records.js';
import type { PassRate } from '../spec/pass-rate.js';
import type { Digest } from '../spec/records/parts.js';
import type { Numerics } from '../spec/records/numerics.js';
import type { PlacementSpec } from '../spec/run-spec.js';

export type { ControlState } from '../spec/records/control-records.js';

export interface WorkflowIdentity {
  workflowId: string;
  runId: string;
  firstExecutionRunId: string;
  namespace: string;
}

/** Steps of a phase: `first..last`, both included; empty if `last` is before `first`. */
export interface PhaseSpan {
  name: string;
  kind: 'sft' | 'grpo';
  first: number;
  last: number;
}

/** What the workflow needs of the spec. */
export interface RunOutline {
  run: string;
  name: string;
  project: string;
  model: string;
  /** In order; the last one is GRPO. */
  phases: PhaseSpan[];
  /** The run and step that this one goes on from; absent if it began with the base model. */
  lineage?: { run: string; step: number };
  ckpt_interval: number;
  eval_interval: number;
  /** 0: no early end. */
  target_pass_at_1: number;
  /** How long the same failure is tried again before a person is asked (R27). Absent in answers of an earlier version: 0. */
  block_after_s?: number;
  /** Where else people can follow the run, in words: `Slack #runs`. */
  followed_in?: string[];
}

export interface RunPosition {
  /** Last committed step; −1 before the base record. */
  step: number;
  state: Digest | null;
  /** Step of the newest checkpoint in the store. */
  lastCheckpoint: number | null;
}

/** A run's limits, what it had used when it was opened, and when it was first started. */
export interface OpenedBudget {
  limits: BudgetLimit[];
  spent: Omit<Spent, 'wall_seconds'>;
  /** ISO 8601. */
  startedAt: string;
}

export interface BudgetLine {
  name: BudgetLimit['name'];
  limit: number;
  spent: number;
}

export interface OpenedRun {
  outline: RunOutline;
  owner: number;
  position: RunPosition;
  control: ControlState;
  /** Absent if nothing is limited. */
  budget?: OpenedBudget;
  /** The placement of this start; absent: one node, priority 0. */
  placement?: PlacementSpec;
}

export interface StepReference {
  run: string;
  step: number;
  owner: number;
}

/** What the workflow learns of an attempt beside its result. */
export interface Observation {
  /** Milliseconds since 1970 by the server's clock: when the attempt was scheduled, plus its duration. */
  ended_at?: number;
}

/** A hold-up of a run that only its workflow knows. `waited`: for a node, the orchestrator or the server. `event`: a lease. */
export type Interruption =
  | { what: 'node_lost' | 'node_drained'; event: string; seconds: number }
  | { what: 'waited'; seconds: number };

/** Failure of `planStep` if the workflow does not know all control records; its first detail is the folded `ControlState`. */
export type ControlIsBehind = 'ControlIsBehind';

export interface PlannedStep extends Observation {
  step: number;
  /** `rebased`: a logged batch is applied again; nothing is sampled. */
  kind: 'sft' | 'grpo' | 'rebased';
  plan: Digest;
  slots: number;
  /** The run's figures `ft/…` up to the step before, if they are known by now. */
  faults?: Record<string, number>;
}

export interface CollectedRollouts extends Observation {
  graded: number;
  unknown: number;
  /** The reason of most unknown outcomes, in words; absent if all are known, or the step was committed already. */
  unknown_reason?: string;
  /** Null if nothing was graded; 0 in answers of an earlier version. */
  mean_reward: number | null;
  /** Sampled tokens, and seconds of this call. */
  tokens: number;
  seconds: number;
  /** The result of `keep`; null if it was not asked for, or the step was committed already. */
  kept: KeptState | null;
}

/** A state on the node's disk, or why it is missing, which fails no step (R16). */
export type KeptState = { seconds: number } | { problem: string };

/** `reason` of a step whose groups had nothing to learn from: not applied, but no fault. */
export type NoSignal = 'no_signal';

export interface CommittedStep extends Observation {
  step: number;
  kind: 'sft' | 'grpo';
  state: Digest;
  applied: boolean;
  reason: string | null;
  /** What the step has used. */
  spent?: Omit<Spent, 'wall_seconds'>;
  /** The few metrics that `status` shows; the record has all of them, and of many environments. */
  metrics: Record<string, number>;
  /** Set if too few of its outcomes are graded: why, and how to fix it. */
  ungraded?: string;
}

export interface EvaluatedState extends Observation {
  state: Digest;
  suite: Digest;
  suite_name: string;
  pass_at_1: PassRate;
  graded: number;
  unknown: number;
  /** The reason of most unknown outcomes, in words. */
  unknown_reason?: string;
}

/** A chain of executions of one workflow: starting a run again under the same id begins another chain. */
export interface RunWorkflow {
  workflowId: string;
  firstExecutionRunId: string;
}

/**
 * A run's request for one node. Repeated under the same `lease`, it changes nothing; with `holding` it reports a lease that the pool may
 * have forgotten.
 */
export interface LeaseRequest extends RunWorkflow {
  /** `{run}/{a random part}/{n}` */
  lease: string;
  run: string;
  project: string;
  /** Higher goes first. */
  priority: number;
  /** Numerics of the run's records; null before there are any: the first node decides (R18). */
  numerics: Numerics | null;
  /** The run's `model.served.name`, where `numerics` is null; absent: a model that the node loads itself. */
  served?: string;
  /** Nodes that the request excludes. */
  besides: string[];
  /** Do not wait: if no node is free at once, the answer is `refused`. */
  atOnce?: true;
  holding?: string;
  /** An execution's run id, and all leases that it holds or has requested: one that was reset has forgotten the later ones. */
  asker?: { execution: string; knows: string[] };
}

/** On the orchestrator's queue `longhaul`. */
export interface OrchestratorActivities {
  /** Checks the spec, creates or resumes the run's records, claims ownership (R20). Fails with every problem at once. */
  openRun(input: { spec: unknown; workflow: WorkflowIdentity; takeOver?: boolean }): Promise<OpenedRun>;
  /**
   * Asks the pool for a node, or reports a held one; the answer comes as a signal. `numericsOf`: the run whose numerics the node must have,
   * if the holder is not a run.
   */
  requestLease(input: Omit<LeaseRequest, 'numerics' | 'served'> & { numericsOf?: string }): Promise<void>;
  /** The runs that are over (R30); one whose server does not answer does not count as over. */
  closedRuns(input: { runs: RunWorkflow[] }): Promise<RunWorkflow[]>;
  /** Writes the next control record, or finds the one of this Update (R21). */
  recordControl(input: {
    run: string;
    owner: number;
    updateId: string;
    change: ControlChange;
  }): Promise<ControlState>;
  planStep(input: StepReference & { control: number }): Promise<PlannedStep>;
  /** Deletes checkpoints beyond the retention and folds the episodes of committed steps (R23); waits for its grace. */
  collectGarbage(input: StepReference): Promise<CollectedGarbage>;
  /** Writes the HTML report beside the run's records; returns its key and its figures `ft/…`. */
  writeReport(input: { run: string }): Promise<{ key: string; faults?: Record<string, number> }>;
}

/** `n`: number of the record; null if there was nothing to collect. `freed`: bytes. */
export interface CollectedGarbage {
  n: number | null;
  checkpoints: number;
  /** Steps whose episodes were folded into one file each. */
  steps: number;
  freed: number;
}

/** What the workflow passes to every activity of `NodeActivities` beside its input. */
export interface OnNode {
  /** Since the last result of an activity on a node; the attempt's record will hold them. Absent if there are none. */
  interruptions?: Interruption[];
}

/** On a node's queue `longhaul-node.<id>.gpu`. */
export interface NodeActivities {
  /** Holds the base model and records it as step 0. */
  commitBase(input: { run: string; owner: number } & OnNode): Promise<{ state: Digest }>;
  /** With `keep`, the state that samples is saved to the node's disk beside the rollouts (R16); `spare` as of `saveState`. */
  collectRollouts(
    input: StepReference & OnNode & { plan: Digest; slots: [number, number]; keep?: boolean; spare?: number },
  ): Promise<CollectedRollouts>;
  /**
   * Seals the batch of the plan's episodes, applies it, and commits the step. `elsewhere`: seconds in which nodes other than this one
   * played its episodes.
   */
  updatePolicy(input: StepReference & OnNode & { plan: Digest; elsewhere?: number }): Promise<CommittedStep>;
  /** Evaluates the state after `step` on a suite of held-out tasks; each (state, suite, task, sample) once ever. */
  evaluateState(input: StepReference & OnNode & { suite: 'interval' | 'final' }): Promise<EvaluatedState>;
  /** Saves the state after `step` to the node's disk, which keeps a few; keeps that of step `spare`, too, which is being uploaded. */
  saveState(input: StepReference & OnNode & { spare?: number }): Promise<{ path: string }>;
}

/** On a node's queue `longhaul-node.<id>.io`. */
export interface TransferActivities {
  /**
   * Uploads what was saved on this node, the manifest last. If it is missing: fails with `CheckpointGivenUp`, or restores it with
   * `restore`.
   */
  uploadCheckpoint(input: StepReference & { restore?: boolean }): Promise<{ key: string }>;
}

/** Failure types that a retry cannot fix; each blocks or ends the run. */
export const fatalFailures = [
  'InvalidSpec',
  'OwnerChanged',
  'RunOwned',
  'Diverged',
  'NoProgress',
  'EnvironmentsUnavailable',
  'NothingGraded',
  'UnreadableRecord',
  'OlderSchema',
  'NewerSchema',
  'StoreUnfit',
  'EngineUnfit',
  'BadModelFolder',
] as const;
export type FatalFailure = (typeof fatalFailures)[number];

/** First detail of a failure that has a better remedy than the one of its type. */
export interface FailureDetail {
  remedy: string;
}

/** Details of `NoProgress`: whether the activity had left a record before it began to fail. */
export interface Standstill {
  recorded: boolean;
}

export type RunPhase =
  | 'starting'
  | 'placing'
  | 'evaluating'
  | 'planning'
  | 'collecting'
  | 'updating'
  | 'paused'
  | 'blocked'
  | 'reporting'
  | 'completed'
  | 'stopped';

/** Answer of the query `status`. */
export interface RunStatus {
  run: string;
  /** As in the outline. */
  lineage?: { run: string; step: number };
  phase: RunPhase;
  /** Last committed step and the last one planned for. */
  step: number;
  totalSteps: number;
  trainingPhase: string;
  owner: number;
  /** The node of updates and evaluations; null while the run has none. */
  node: string | null;
  /** Other nodes that share its rollouts. */
  sharingNodes: string[];
  /** Why the run has no node yet; null while it waits for none. */
  waitsFor: string | null;
  /** Digest after `step`. */
  state: Digest | null;
  control: ControlState;
  /** Present if the run has a budget: as of the last step boundary. */
  budget?: BudgetLine[];
  /** Present while `blocked`: why, and the way out. */
  blocked: { reason: string; remedy: string } | null;
  /** Present while a part of it fails again and again and is still tried: why, and what happens next. */
  failing?: { reason: string; remedy: string };
  /** Figures `ft/…` since the run began, as of the newest plan: the cost of faults. A missing figure is 0. */
  faults?: Record<string, number>;
  evaluations: {
    step: number;
    suite: string;
    pass_at_1: PassRate;
    graded: number;
    /** Absent if all outcomes are graded, and in answers of an earlier version. */
    unknown?: number;
    unknown_reason?: string;
  }[];
  /** The target that an interval evaluation has reached, which ends the run; absent until then. */
  reachedTarget?: number;
  /** The last steps, newest last; at most 20. */
  recent: { step: number; kind: string; seconds: number; metrics: Record<string, number> }[];
  /** Mean rewards of the last GRPO steps, newest last; at most 40. Absent in answers of an earlier version. */
  rewards?: number[];
  lastCheckpoint: number | null;
  /** Tokens sampled while this workflow collected rollouts, and the seconds that took. */
  tokens: number;
  sampleSeconds: number;
  /** Episodes that ended meanwhile, and those of the last step that sampled; absent before there are any. */
  outcomes?: {
    graded: number;
    unknown: number;
    last: { step: number; graded: number; unknown: number; unknown_reason?: string };
  };
  report: string | null;
  /** Why the last collection of garbage, begun after `step`, failed; absent if it did not. */
  collectionFailure?: { step: number; reason: string };
  /** The last signals that changed nothing, newest last, at most 3; absent before there is one. `at`: ISO 8601. */
  signals?: { name: string; reason: string; at: string }[];
}
