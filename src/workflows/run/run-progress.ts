// What a run shows: the answer of `status`, the live text in the Temporal UI, search attributes, and summaries.
import { defineSearchAttributeKey } from '@temporalio/common';
import { setCurrentDetails, upsertSearchAttributes } from '@temporalio/workflow';
import type {
  BudgetLine,
  CollectedRollouts,
  CommittedStep,
  ControlState,
  EvaluatedState,
  RunOutline,
  RunPhase,
  RunPosition,
  RunStatus,
} from '../../activities/contracts.js';
import type { ServedLine } from '../../spec/budget.js';
import { budgetNotes, isSpent } from '../status/budget.js';
import { noSignal } from '../policies.js';
import { detailsOf } from '../status/run-details.js';
import { summaryOf } from '../status/run-text.js';
import { noControl } from './control-desk.js';
import { phaseOf, suiteDue, totalSteps } from './step-schedule.js';

const attributeKeys = {
  runName: defineSearchAttributeKey('RunName', 'KEYWORD'),
  project: defineSearchAttributeKey('Project', 'KEYWORD'),
  model: defineSearchAttributeKey('Model', 'KEYWORD'),
  phase: defineSearchAttributeKey('Phase', 'KEYWORD'),
  step: defineSearchAttributeKey('Step', 'INT'),
  passAt1: defineSearchAttributeKey('PassAt1', 'DOUBLE'),
};

/** How many recent steps `status` shows; figures of older steps are in the records. */
const maxRecentSteps = 20;
const maxEvaluations = 60;
const maxRewards = 40;
const maxSignals = 3;
/** Phases that last long enough to search for. Each change of the attribute costs an event, so the phases within a step are left out. */
const searchablePhases: readonly RunPhase[] = ['evaluating', 'paused', 'completed', 'stopped'];

/** Characters of a reason that are shown and carried over continue-as-new. */
const maxReason = 300;

type OutcomeFigures = 'graded' | 'unknown' | 'unknown_reason';

function shownReason(reason: string | undefined): { unknown_reason?: string } {
  return reason === undefined ? {} : { unknown_reason: reason.slice(0, maxReason) };
}

/** Figures for people, carried over continue-as-new because no single record of the run holds them. */
export interface CarriedFigures {
  evaluations: RunStatus['evaluations'];
  recent: RunStatus['recent'];
  lastCheckpoint: number | null;
  tokens: number;
  sampleSeconds: number;
  rewards: RunStatus['rewards'];
  outcomes?: RunStatus['outcomes'];
  collectionFailure?: RunStatus['collectionFailure'];
}

export class RunProgress {
  readonly status: RunStatus;
  private outline: RunOutline | null = null;
  /** What the run itself is doing; if something holds it up, `status.phase` shows that instead. */
  private doing: RunPhase = 'starting';
  private readonly blocks: NonNullable<RunStatus['blocked']>[] = [];
  /** `coarse`: the last phase in `searchablePhases`. `published`: the search attribute; it differs while the run is blocked or failing. */
  private coarse = 'starting';
  private published = 'starting';
  private checkpointTrouble: string | null = null;
  private readonly failures: NonNullable<RunStatus['failing']>[] = [];
  private blockAfterSeconds: number;

  /** `blockAfterSeconds`: the value in the workflow's input, used until the run is opened. */
  constructor(run: string, carried: CarriedFigures | undefined, blockAfterSeconds: number) {
    this.blockAfterSeconds = blockAfterSeconds;
    this.status = {
      run,
      phase: 'starting',
      step: -1,
      totalSteps: 0,
      trainingPhase: '',
      owner: 0,
      node: null,
      sharingNodes: [],
      waitsFor: null,
      state: null,
      control: noControl,
      blocked: null,
      evaluations: carried?.evaluations ?? [],
      recent: carried?.recent ?? [],
      lastCheckpoint: carried?.lastCheckpoint ?? null,
      tokens: carried?.tokens ?? 0,
      sampleSeconds: carried?.sampleSeconds ?? 0,
      report: null,
      rewards: carried?.rewards ?? [],
      ...(carried?.outcomes ? { outcomes: carried.outcomes } : {}),
      ...(carried?.collectionFailure ? { collectionFailure: carried.collectionFailure } : {}),
    };
  }

  opened(outline: RunOutline, owner: number, position: RunPosition): void {
    this.outline = outline;
    this.blockAfterSeconds = outline.block_after_s;
    Object.assign(this.status, { run: outline.run, owner, totalSteps: totalSteps(outline) });
    if (outline.lineage) this.status.lineage = outline.lineage;
    this.at(position.step, position.state);
    this.status.lastCheckpoint ??= position.lastCheckpoint;
    upsertSearchAttributes([
      { key: attributeKeys.runName, value: outline.name },
      { key: attributeKeys.project, value: outline.project },
      { key: attributeKeys.model, value: outline.model },
    ]);
  }

  controlled(control: ControlState): void {
    this.status.control = control;
  }

  /** True if the run is blocked or keeps failing: `resume` makes it try at once. */
  get waitsForPerson(): boolean {
    return this.status.blocked !== null || this.status.failing !== undefined;
  }

  at(step: number, state: string | null): void {
    this.status.step = step;
    this.status.state = state;
    if (this.outline) this.status.trainingPhase = phaseOf(this.outline, step + 1)?.name ?? '';
  }

  phase(phase: RunPhase): void {
    this.doing = phase;
    if (searchablePhases.includes(phase)) this.coarse = phase;
    this.showPhase();
  }

  /** Shows an evaluation. An evaluation beside a step's rollouts is part of the phase `collecting`. */
  evaluating(): void {
    if (this.doing !== 'collecting') this.phase('evaluating');
  }

  /** What is used of each limit, and what was sent to a Tinker server, at a step boundary. */
  budget(lines: BudgetLine[] | null, served: ServedLine[] | null): void {
    if (served) this.status.served = served;
    if (lines) this.status.budget = lines;
    if (lines ?? served) this.show();
  }

  /** Why the run ends at this step boundary; null while no limit is used up. */
  get spentBudget(): string | null {
    return budgetNotes((this.status.budget ?? []).filter(isSpent))[0] ?? null;
  }

  /** The nodes on which the run works, and why it waits if it waits for a node. */
  placed(nodes: readonly string[], waitsFor: string | null): void {
    const [node = null, ...others] = nodes;
    this.status.node = node;
    this.status.sharingNodes = others;
    this.status.waitsFor = waitsFor;
    this.showPhase();
  }

  /** Shows the run as blocked until `way` ends; if several parts are blocked, the last one is shown. */
  async whileBlocked(blocked: NonNullable<RunStatus['blocked']>, way: () => Promise<void>): Promise<void> {
    this.blocks.push(blocked);
    this.showPhase();
    try {
      await way();
    } finally {
      this.blocks.splice(this.blocks.indexOf(blocked), 1);
      this.showPhase();
    }
  }

  /** For how long the run repeats work that fails in the same way before it asks a person. */
  get blockAfterMs(): number {
    return 1000 * this.blockAfterSeconds;
  }

  /** Shows that a part of the run fails and is tried again (the last such part, if several) until the returned function is called. */
  failing(failure: NonNullable<RunStatus['failing']>): () => void {
    this.failures.push(failure);
    this.showPhase();
    return () => {
      this.failures.splice(this.failures.indexOf(failure), 1);
      this.showPhase();
    };
  }

  committed(
    committed: CommittedStep,
    seconds: number,
    sampled: Pick<CollectedRollouts, 'tokens' | 'seconds' | OutcomeFigures> | null,
  ): void {
    this.at(committed.step, committed.state);
    this.status.tokens += sampled?.tokens ?? 0;
    this.status.sampleSeconds += sampled?.seconds ?? 0;
    if (sampled) this.sampled(committed, sampled);
    const { step, kind, applied, reason } = committed;
    const metrics =
      applied || reason === noSignal ? committed.metrics : { ...committed.metrics, unapplied: 1 };
    this.status.recent.push({ step, kind, seconds, metrics });
    if (this.status.recent.length > maxRecentSteps) this.status.recent.shift();
    this.coarse = committed.kind;
    this.showPhase();
  }

  private sampled(
    { step, metrics }: CommittedStep,
    { graded, unknown, unknown_reason }: Pick<CollectedRollouts, OutcomeFigures>,
  ): void {
    const { outcomes, rewards } = this.status;
    const before = outcomes ?? { graded: 0, unknown: 0 };
    this.status.outcomes = {
      graded: before.graded + graded,
      unknown: before.unknown + unknown,
      last: { step, graded, unknown, ...shownReason(unknown_reason) },
    };
    const reward = metrics['reward/avg_raw_reward'];
    // Three digits are enough for people, and keep the carried state small.
    if (reward !== undefined)
      this.status.rewards = [...rewards, Number(reward.toFixed(3))].slice(-maxRewards);
  }

  evaluated(step: number, evaluated: EvaluatedState): void {
    const { suite_name: suite, pass_at_1, pass_at_k, graded, unknown, unknown_reason } = evaluated;
    const others = this.status.evaluations.filter((known) => known.step !== step || known.suite !== suite);
    const missing = unknown > 0 ? { unknown, ...shownReason(unknown_reason) } : {};
    const shown = {
      step,
      suite,
      pass_at_1,
      ...largestRate(pass_at_k),
      graded,
      ...missing,
      ...(suite === 'final' && this.outline && suiteDue(this.outline, step) === 'final'
        ? { before_grpo: true as const }
        : {}),
    };
    this.status.evaluations = [...others, shown].slice(-maxEvaluations);
    upsertSearchAttributes([
      { key: attributeKeys.passAt1, value: pass_at_1 },
      { key: attributeKeys.step, value: Math.max(step, 0) },
    ]);
    this.show();
  }

  checkpoint(step: number): void {
    this.status.lastCheckpoint = step;
    this.checkpointTrouble = null;
    this.show();
  }

  checkpointFailed(step: number, message: string): void {
    this.checkpointTrouble = `the checkpoint of step ${step} failed (${message}); the next checkpoint follows as planned`;
    this.show();
  }

  /** Call when a collection succeeded: an earlier failure is then no longer shown. */
  collected(): void {
    delete this.status.collectionFailure;
    this.show();
  }

  collectionFailed(step: number, message: string): void {
    this.status.collectionFailure = { step, reason: message.slice(0, maxReason) };
    this.show();
  }

  /** Shows why a signal changed nothing: a signal has no answer. */
  signalled(note: NonNullable<RunStatus['signals']>[number]): void {
    this.status.signals = [...(this.status.signals ?? []), note].slice(-maxSignals);
    this.show();
  }

  carried(): CarriedFigures {
    const { evaluations, recent, lastCheckpoint, tokens, sampleSeconds, rewards, outcomes } = this.status;
    const { collectionFailure } = this.status;
    return {
      ...{ evaluations, recent: recent.slice(-3), lastCheckpoint, tokens, sampleSeconds, rewards },
      ...(outcomes ? { outcomes } : {}),
      ...(collectionFailure ? { collectionFailure } : {}),
    };
  }

  /** `step 121 · update · reward 0.41 at 120`. Fixed when the activity is scheduled, so it has the last known figures. */
  summary(step: number, doing: string): string {
    return summaryOf(this.status, step, doing);
  }

  private showPhase(): void {
    this.status.blocked = this.blocks.at(-1) ?? null;
    const failing = this.failures.at(-1);
    if (failing) this.status.failing = failing;
    else delete this.status.failing;
    this.status.phase = this.status.blocked
      ? 'blocked'
      : this.status.waitsFor !== null
        ? 'placing'
        : this.doing;
    this.publish(this.status.blocked ? 'blocked' : failing ? 'failing' : this.coarse);
    this.show();
  }

  /** Updates the search attributes, but only if the coarse phase has changed: each update is an event. */
  private publish(phase: string): void {
    if (this.published === phase) return;
    this.published = phase;
    upsertSearchAttributes([
      { key: attributeKeys.phase, value: phase },
      { key: attributeKeys.step, value: Math.max(this.status.step, 0) },
    ]);
  }

  private show(): void {
    const { outline, checkpointTrouble } = this;
    setCurrentDetails(detailsOf(this.status, { outline, checkpointTrouble, now: Date.now() }));
  }
}

/** Only the largest k, to keep the carried state small. The value is not trusted, because a person may have completed the activity by hand. */
function largestRate(pass_at_k: unknown): { pass_at_k?: Record<string, number> } {
  if (typeof pass_at_k !== 'object' || pass_at_k === null) return {};
  const rates = Object.entries(pass_at_k).filter(
    (entry): entry is [string, number] => /^[1-9][0-9]*$/.test(entry[0]) && typeof entry[1] === 'number',
  );
  const largest = rates.sort(([a], [b]) => Number(b) - Number(a))[0];
  return largest ? { pass_at_k: Object.fromEntries([largest]) } : {};
}
