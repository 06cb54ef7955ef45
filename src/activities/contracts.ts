// The types that workflows and activities exchange. Workflows import only types from here; the one value, `fatalFailures`, is for
// activities. All payloads are small (< 10 KB): digests and figures, never data.
import type { BudgetLimit, ServedLine, Spent, TokenPrices } from '../spec/budget.js';
import type { ControlChange, ControlState } from '../spec/records/control-records.js';
import type { PassRate } from '../spec/pass-rate.js';
import type { Digest } from '../spec/records/parts.js';
import type { NeededNumerics, Numerics } from '../spec/records/numerics.js';
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

/** The parts of the spec that the workflow needs. */
export interface RunOutline {
  run: string;
  name: string;
  project: string;
  model: string;
  /** In order; the last one is GRPO. */
  phases: PhaseSpan[];
  /** The run and step at which this run was forked; absent if it began with the base model. */
  lineage?: { run: string; step: number };
  ckpt_interval: number;
  eval_interval: number;
  /** 0: the run has no target and never ends early. */
  target_pass_at_1: number;
  /** Seconds for which the same failure is retried before a person is asked (R27). */
  block_after_s: number;
  /** Other places where people can follow the run, as text: `Slack #runs`. */
  followed_in?: string[];
}

export interface RunPosition {
  /** Last committed step; −1 before the base record. */
  step: number;
  state: Digest | null;
  /** Step of the newest checkpoint in the store. */
  lastCheckpoint: number | null;
}

/** A run's limits, its spending until it was opened, and the time of its first start. */
export interface OpenedBudget {
  limits: BudgetLimit[];
  spent: Omit<Spent, 'wall_seconds'>;
  /** ISO 8601. */
  startedAt: string;
  usd_per_million?: TokenPrices;
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
  /** The placement of this start. Absent: one node, priority 0. */
  placement?: PlacementSpec;
}

export interface StepReference {
  run: string;
  step: number;
  owner: number;
}

/** Facts about an attempt that the workflow receives beside the result. */
export interface Observation {
  /** Milliseconds since 1970 by the server's clock: when the attempt was scheduled, plus its duration. */
  ended_at?: number;
}

/**
 * An interruption that the run's workflow knows. `waited`: the run waited for a node, the orchestrator or the server. `event`: the lease
 * that ended.
 */
export type Interruption =
  | { what: 'node_lost'; event: string; seconds: number }
  | { what: 'node_drained'; event: string; seconds: number; node: string }
  | { what: 'waited'; seconds: number };

/**
 * Type of the failure with which `planStep` reports control records that the workflow does not know. Its first detail is the folded
 * `ControlState`.
 */
export type ControlIsBehind = 'ControlIsBehind';

export interface PlannedStep extends Observation {
  step: number;
  /** `rebased`: the step applies a logged batch again and samples nothing. */
  kind: 'sft' | 'grpo' | 'rebased';
  plan: Digest;
  slots: number;
  /** The step may get waves: further slots, after the outcomes of those before. */
  waves?: true;
  /** The run's figures `ft/…` up to the step before, if they were counted in time. */
  faults?: Record<string, number>;
}

/** Slots of a wave, the last one excluded; equal if the step needs no further wave. */
export interface PlannedWave extends Observation {
  from: number;
  to: number;
}

export interface CollectedRollouts extends Observation {
  graded: number;
  unknown: number;
  /** The most frequent reason of unknown outcomes, as text; absent if all outcomes are known, or if the step was committed already. */
  unknown_reason?: string;
  /** Null if no outcome was graded. */
  mean_reward: number | null;
  /** Tokens sampled by this call, and its duration. */
  tokens: number;
  seconds: number;
  /** The result of saving the state; null without `keep`, or if the step was committed already. */
  kept: KeptState | null;
}

/** A state saved to the node's disk, or the problem that prevented it. A failed save does not fail the step (R16). */
export type KeptState = { seconds: number } | { problem: string };

/** `reason` of a step that applied no update because no group had a learning signal. This is no fault. */
export type NoSignal = 'no_signal';
/** `reason` of a step with a signal whose targets were all left out by overlong filtering. It was meant to learn, so it counts (R27). */
export type AllFiltered = 'all_filtered';

export interface CommittedStep extends Observation {
  step: number;
  kind: 'sft' | 'grpo';
  state: Digest;
  applied: boolean;
  reason: string | null;
  /** The step's use of the budget. */
  spent?: Omit<Spent, 'wall_seconds'>;
  /** Only the metrics that `status` shows; the record has all metrics, also per environment. */
  metrics: Record<string, number>;
  /** Set if too few of the step's outcomes are graded: the cause, and how to fix it. */
  ungraded?: string;
}

export interface EvaluatedState extends Observation {
  state: Digest;
  suite: Digest;
  suite_name: string;
  pass_at_1: PassRate;
  /** Absent if the suite has one sample a task. */
  pass_at_k?: Record<string, number>;
  graded: number;
  unknown: number;
  /** The most frequent reason of unknown outcomes, as text. */
  unknown_reason?: string;
}

/** Identifies a chain of executions of one workflow. If a run is started again under the same workflow id, a new chain begins. */
export interface RunWorkflow {
  workflowId: string;
  firstExecutionRunId: string;
}

/**
 * A run's request for one node. Repeating it with the same `lease` changes nothing. With `holding`, it reports a lease that the run holds,
 * in case the pool has lost it.
 */
export interface LeaseRequest extends RunWorkflow, NeededNumerics {
  /** `{run}/{a random part}/{n}` */
  lease: string;
  run: string;
  project: string;
  /** A higher priority is served first. */
  priority: number;
  /** Numerics in the run's records (R18). Null before the first record: then `served` and `backend` say what the node needs. */
  numerics: Numerics | null;
  /** Nodes that must not be chosen. */
  besides: string[];
  /** If no node is free now, the answer is `refused` instead of a place in the queue. */
  atOnce?: true;
  holding?: string;
  /**
   * The execution's run id, and all leases that it holds or has requested. An execution that was reset no longer knows its later leases.
   */
  asker?: { execution: string; knows: string[] };
}

/** On the orchestrator's queue `longhaul`. */
export interface OrchestratorActivities {
  /** Checks the spec, creates or resumes the run's records, claims ownership (R20). Fails with every problem at once. */
  openRun(input: { spec: unknown; workflow: WorkflowIdentity; takeOver?: boolean }): Promise<OpenedRun>;
  /**
   * Asks the pool for a node, or reports a held one; the answer arrives as a signal. `numericsOf`: the run whose numerics the node must
   * have; used when the holder of the lease is not a run.
   */
  requestLease(
    input: Omit<LeaseRequest, 'numerics' | keyof NeededNumerics> & { numericsOf?: string },
  ): Promise<void>;
  /** Returns the runs that have ended (R30). A run whose server does not answer is not returned. */
  closedRuns(input: { runs: RunWorkflow[] }): Promise<RunWorkflow[]>;
  /** Writes the next control record, or finds the record of this Update (R21). */
  recordControl(input: {
    run: string;
    owner: number;
    updateId: string;
    change: ControlChange;
  }): Promise<ControlState>;
  planStep(input: StepReference & { control: number }): Promise<PlannedStep>;
  /** Plans further slots of the step, if too few groups have different values. All slots before have their records. */
  planWave(input: StepReference & { plan: Digest; wave: number }): Promise<PlannedWave>;
  /**
   * Deletes checkpoints beyond the retention and folds the episodes of committed steps (R23). Waits for the grace period before it deletes.
   */
  collectGarbage(input: StepReference): Promise<CollectedGarbage>;
  /** Writes the HTML report beside the run's records; returns its key and its figures `ft/…`. */
  writeReport(input: { run: string }): Promise<{ key: string; faults?: Record<string, number> }>;
}

/** `n`: number of the collection's record; null if there was nothing to collect. `freed`: bytes. */
export interface CollectedGarbage {
  n: number | null;
  checkpoints: number;
  /** Steps whose episodes were folded into one file each. */
  steps: number;
  freed: number;
}

/** What the workflow passes to every activity of `NodeActivities` in addition to its own input. */
export interface OnNode {
  /** Interruptions since an activity on a node last returned a result; the attempt's record will contain them. Absent if there are none. */
  interruptions?: Interruption[];
}

/** On a node's queue `longhaul-node.<id>.gpu`. */
export interface NodeActivities {
  /** Loads the base model and records it as step 0. */
  commitBase(input: { run: string; owner: number } & OnNode): Promise<{ state: Digest }>;
  /** With `keep`, the node saves the sampling state to its disk while it plays the rollouts (R16). `spare`: see `saveState`. */
  collectRollouts(
    input: StepReference & OnNode & { plan: Digest; slots: [number, number]; keep?: boolean; spare?: number },
  ): Promise<CollectedRollouts>;
  /**
   * Builds the batch from the plan's episodes, applies it, and commits the step. `elsewhere`: seconds in which other nodes played this
   * step's episodes.
   */
  updatePolicy(input: StepReference & OnNode & { plan: Digest; elsewhere?: number }): Promise<CommittedStep>;
  /** Evaluates the state after `step` on a suite of held-out tasks. Each (state, suite, task, sample) is played only once. */
  evaluateState(input: StepReference & OnNode & { suite: 'interval' | 'final' }): Promise<EvaluatedState>;
  /**
   * Saves the state after `step` to the node's disk and deletes older ones there, except the state after step `spare`, whose upload is
   * running.
   */
  saveState(input: StepReference & OnNode & { spare?: number }): Promise<{ path: string }>;
}

/** On a node's queue `longhaul-node.<id>.io`. */
export interface TransferActivities {
  /**
   * Uploads the state saved on this node, the manifest last. If the saved state is missing or damaged, it is computed again with `restore`;
   * without `restore`, the activity fails with `CheckpointGivenUp`.
   */
  uploadCheckpoint(input: StepReference & { restore?: boolean }): Promise<{ key: string }>;
}

/** Failure types that a retry cannot fix. Each of them blocks or ends the run. */
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
  'PolicyServerUnavailable',
  'PolicyServerDenied',
] as const;
export type FatalFailure = (typeof fatalFailures)[number];

/** First detail of a failure that has a more specific remedy than its type. */
export interface FailureDetail {
  remedy: string;
}

/** Details of `NoProgress`: whether the activity had written a record before the failures began. */
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
  /** As in `RunOutline`. */
  lineage?: { run: string; step: number };
  phase: RunPhase;
  /** Last committed step, and the number of the run's last step. */
  step: number;
  totalSteps: number;
  trainingPhase: string;
  owner: number;
  /** The node that computes updates and evaluations; null if the run has no node now. */
  node: string | null;
  /** Other nodes that share its rollouts. */
  sharingNodes: string[];
  /** Why the run has no node yet; null if it is not waiting for one. */
  waitsFor: string | null;
  /** Digest of the state after `step`. */
  state: Digest | null;
  control: ControlState;
  /** Present if the run has a budget; as of the last step boundary. */
  budget?: BudgetLine[];
  /** Present once something was sent to a Tinker server: as of the last step boundary. */
  served?: ServedLine[];
  /** Present in phase `blocked`: the cause and the remedy. */
  blocked: { reason: string; remedy: string } | null;
  /** Present while an activity keeps failing but is still retried: the cause, and what happens next. */
  failing?: { reason: string; remedy: string };
  /** Figures `ft/…`, the cost of faults since the run began, as of the newest plan. A missing figure is 0. */
  faults?: Record<string, number>;
  evaluations: {
    step: number;
    suite: string;
    pass_at_1: PassRate;
    /** Only the largest k; absent if the suite has one sample a task. */
    pass_at_k?: Record<string, number>;
    graded: number;
    /** Absent if all outcomes are graded. */
    unknown?: number;
    unknown_reason?: string;
    /** True for the suite `final` before GRPO; the suite is played again at the end. */
    before_grpo?: true;
  }[];
  /** The target that an interval evaluation has reached. Reaching it ends the run; absent until then. */
  reachedTarget?: number;
  /** The last steps, newest last; at most 20. */
  recent: { step: number; kind: string; seconds: number; metrics: Record<string, number> }[];
  /** Mean rewards of the last GRPO steps, newest last; at most 40. */
  rewards: number[];
  lastCheckpoint: number | null;
  /** Tokens that this workflow has sampled, and the seconds it spent collecting rollouts. */
  tokens: number;
  sampleSeconds: number;
  /**
   * Outcomes of all episodes that this workflow collected, and of the last step that sampled. Absent before the first step that samples.
   */
  outcomes?: {
    graded: number;
    unknown: number;
    last: { step: number; graded: number; unknown: number; unknown_reason?: string };
  };
  report: string | null;
  /** Why the last garbage collection, begun after `step`, failed; absent if it succeeded. */
  collectionFailure?: { step: number; reason: string };
  /** The last signals that had no effect, newest last, at most 3; absent if there were none. `at`: ISO 8601. */
  signals?: { name: string; reason: string; at: string }[];
}
