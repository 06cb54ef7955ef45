// The workflow of a training run: control flow only. Records hold what a step depends on and what it produces (docs/records.md), so this
// workflow can be lost at any point and started again from them.
import {
  allHandlersFinished,
  CancellationScope,
  condition,
  ContinueAsNew,
  isCancellation,
  log,
  setHandler,
  workflowInfo,
} from '@temporalio/workflow';
import type {
  CommittedStep,
  OpenedRun,
  PlannedStep,
  PlannedWave,
  RunOutline,
  RunStatus,
} from '../../activities/contracts.js';
import { forgottenControl } from '../activity-failures.js';
import {
  blockedUntilResumed,
  RecordsChanged,
  StepSamples,
  throwWhereRecordsChanged,
  untilFixed,
} from './blocking.js';
import { Budget } from '../status/budget.js';
import type { Saving } from './checkpoint-uploads.js';
import { ControlDesk } from './control-desk.js';
import { InterruptibleWork, StepInterrupted } from './interruptible-work.js';
import { statusQuery } from '../messages.js';
import { continueOnCurrentBuild, newBuildWaits } from '../continue-as-new.js';
import { NodePlacement } from './node-placement.js';
import {
  farewellReportPolicy,
  maxUnappliedSteps,
  maxUngradedSteps,
  noSignal,
  orchestratorPolicy,
  remedies,
  reportPolicy,
} from '../policies.js';
import { onEngine, orchestrator, stepId } from '../run-activities.js';
import { RunCheckpoints } from './run-checkpoints.js';
import { RunCollections } from './run-collections.js';
import { type CarriedRun, openRun, type TrainingOptions } from './training-options.js';
import { RunProgress } from './run-progress.js';
import { collectOnAll, type JoinedRollouts, playedElsewhere, withWave } from './shared-rollouts.js';
import { outlineUnder, phaseOf, suiteDue, totalSteps } from './step-schedule.js';

export interface TrainingResult {
  run: string;
  /** `completed`: all steps are done, or the target was reached. `stopped`: `stopAfter` was reached, or a budget is spent. */
  ended: 'completed' | 'stopped';
  step: number;
  state: string | null;
  evaluations: RunStatus['evaluations'];
  /** The target that ended the run; absent if it ended otherwise. */
  reachedTarget?: number;
  report: string | null;
  /** The budget that ended the run; null if it ended otherwise. */
  budget: string | null;
  tokens: number;
  sampleSeconds: number;
}

/** Workflow id `train/{name}`. The input is a run spec as JSON, exactly as the user wrote it. */
export async function trainingRun(spec: unknown, options: TrainingOptions = {}): Promise<TrainingResult> {
  const name = workflowInfo().workflowId.replace(/^train\//, '');
  const progress = new RunProgress(name, options.carried?.figures, blockAfterSecondsIn(spec));
  const desk = new ControlDesk(spec, progress);
  setHandler(statusQuery, () => progress.status, { description: 'Where the run is, and its last figures' });

  try {
    const opened = await openRun(spec, options, desk, progress);
    return await new TrainingLoop(spec, options, opened, desk, progress).run();
  } catch (error) {
    if (!isCancellation(error) || progress.status.owner === 0) throw error;
    // All finished work is in the store; this report is for the person who cancelled the run.
    await CancellationScope.nonCancellable(async () => {
      progress.phase('stopped');
      await writeReport(progress, farewellReportPolicy).catch((cause: unknown) => {
        log.warn('The report of the cancelled run was not written', { cause: String(cause) });
      });
    });
    throw error;
  }
}

/** `block_after_s` from the input, for the time until the run is opened; 0 (block at once) if the input does not set it. */
function blockAfterSecondsIn(spec: unknown): number {
  const { trainer } = (spec ?? {}) as { trainer?: { block_after_s?: unknown } };
  return typeof trainer?.block_after_s === 'number' ? trainer.block_after_s : 0;
}

async function writeReport(progress: RunProgress, policy: typeof reportPolicy): Promise<void> {
  const { run } = progress.status;
  const { key, faults } = await orchestrator('report', `report of ${run}`, policy).writeReport({ run });
  progress.status.report = key;
  if (faults) progress.status.faults = faults;
}

class TrainingLoop {
  readonly owned: { run: string; owner: number };
  readonly nodes: NodePlacement;
  private readonly checkpoints: RunCheckpoints;
  private readonly collections: RunCollections;
  readonly interruptible: InterruptibleWork;
  readonly samples: StepSamples;
  private readonly budget: Budget;
  private readonly last: number;
  private unapplied = 0;
  private ungraded = 0;

  constructor(
    private readonly spec: unknown,
    private readonly options: TrainingOptions,
    private readonly opened: OpenedRun,
    private readonly desk: ControlDesk,
    readonly progress: RunProgress,
  ) {
    const { outline, owner } = opened;
    this.owned = { run: outline.run, owner };
    this.last = totalSteps(outline);
    const placement = opened.placement ?? { priority: 0, nodes: 1 };
    const holder = { run: outline.run, project: outline.project, placement };
    this.nodes = new NodePlacement(desk, progress, holder, options.carried?.leases);
    desk.noteUnknownSignals();
    this.collections = new RunCollections(this.owned, progress);
    this.checkpoints = new RunCheckpoints(
      this.owned,
      this.nodes,
      progress,
      () => ({ interval: this.outline.ckpt_interval, asked: desk.control.checkpoint ?? null }),
      (step) => this.collections.startBeside(step),
    );
    this.interruptible = new InterruptibleWork(desk, this.nodes, async () => {
      const { phase } = progress.status;
      await this.rest();
      progress.phase(phase === 'evaluating' ? phase : 'collecting');
    });
    this.samples = new StepSamples(desk);
    this.budget = new Budget(opened.budget);
    this.unapplied = options.carried?.unapplied ?? 0;
    this.ungraded = options.carried?.ungraded ?? 0;
  }

  async run(): Promise<TrainingResult> {
    try {
      if (this.step < 0) await this.commitBase();
      while (await this.goesOn()) {
        await this.takeStep();
        await this.continueAsNewWhenDue();
      }
      return await this.finish();
    } catch (error) {
      if (!(error instanceof ContinueAsNew)) await this.nodes.released();
      throw error;
    }
  }

  private get outline(): RunOutline {
    return outlineUnder(this.opened.outline, this.desk.control);
  }

  private get step(): number {
    return this.progress.status.step;
  }

  private async commitBase(): Promise<void> {
    this.progress.phase('starting');
    const { state } = await this.nodes.onNode((place) =>
      onEngine(place, stepId(0, 'base'), 'step 0 · base model').commitBase(this.owned),
    );
    this.progress.at(0, state);
  }

  /** Waits at this step boundary while the run is paused; returns false when the run ends here. */
  private async goesOn(): Promise<boolean> {
    await this.desk.quiet();
    this.progress.budget(this.budget.lines(), this.budget.served());
    if (this.desk.control.paused && !this.endsHere()) {
      await this.rest();
    }
    if (this.endsHere()) return false;
    const suite = suiteDue(this.outline, this.step);
    if (suite === 'final' || (suite && this.mayEndAtTarget())) await this.unlessLeft(this.evaluate(suite));
    // A pause or a stop may have come during the evaluation; it takes effect before the step, not after it.
    if (this.desk.control.paused && !this.endsHere()) return this.goesOn();
    return !this.endsHere();
  }

  /** Waits until `resume`, or until a stop is reached. A checkpoint that is requested meanwhile saves the current state. */
  private async rest(): Promise<void> {
    const { desk } = this;
    const over = (): boolean => !desk.control.paused || this.stopReached();
    this.progress.phase('paused');
    while (!over()) {
      const { n } = desk.control;
      await this.checkpoints.uploadAsked(this.step);
      await condition(() => over() || desk.control.n > n);
    }
  }

  private async unlessLeft(work: Promise<void>): Promise<void> {
    await work.catch((error: unknown) => {
      if (!(error instanceof StepInterrupted)) throw error;
    });
  }

  private endsHere(): boolean {
    return (
      this.step >= this.last || this.targetReached || this.stopReached() || this.progress.spentBudget !== null
    );
  }

  private get targetReached(): boolean {
    return this.progress.status.reachedTarget !== undefined;
  }

  private stopReached(): boolean {
    const { stopAfter } = this.desk.control;
    return stopAfter !== null && this.step >= stopAfter;
  }

  private mayEndAtTarget(): boolean {
    return this.opened.outline.target_pass_at_1 > 0;
  }

  /** One step, from state `step − 1` to state `step`: plans, collects, seals the batch and updates. */
  private async takeStep(): Promise<void> {
    const step = this.step + 1;
    const startedAt = Date.now();
    let evaluation: Promise<void> | null = null;
    const evaluateOnce = (): Promise<void> => (evaluation ??= this.evaluateBeside(step - 1));
    for (;;) {
      try {
        return await this.unlessLeft(this.stepFromPlan(step, startedAt, evaluateOnce));
      } catch (error) {
        if (!(error instanceof RecordsChanged)) throw error;
      }
    }
  }

  /** Takes the step from its plan on. Each part looks at the records first, so a step that begins again repeats no work. */
  private async stepFromPlan(
    step: number,
    startedAt: number,
    evaluateBeside: () => Promise<void>,
  ): Promise<void> {
    this.progress.phase('planning');
    const planned = await this.plan(step);
    this.samples.begin();
    const keep = await this.checkpoints.wants(step - 1, planned.kind === 'grpo');
    if (planned.kind === 'grpo') await this.interruptible.ready();
    const [sampled] = await Promise.all([
      planned.kind === 'grpo' ? this.collect(planned, keep) : this.saveAlone(step - 1, keep),
      evaluateBeside(),
    ]);
    this.progress.phase('updating');
    const summary = this.progress.summary(step, 'update');
    const committed = await this.nodes.onNode((place) => {
      this.samples.check();
      const elsewhere = playedElsewhere(sampled, place.node);
      return onEngine(place, stepId(step, 'update'), summary).updatePolicy({
        ...this.owned,
        step,
        plan: planned.plan,
        ...(elsewhere > 0 ? { elsewhere } : {}),
      });
    }, throwWhereRecordsChanged);
    const seconds = (Date.now() - startedAt) / 1000;
    this.progress.committed(committed, seconds, sampled);
    this.budget.add(committed);
    this.checkpoints.stepTook(seconds);
    await this.watchApplied(committed);
    await this.watchGrades(committed);
  }

  /** Throws `StepInterrupted` if the records hold control that this workflow did not know, such as a pause before the step. */
  private async plan(step: number): Promise<PlannedStep> {
    const planned = await untilFixed(this.desk, this.progress, async () => {
      await this.desk.quiet();
      const summary = this.progress.summary(step, 'plan');
      const { n } = this.desk.control;
      return orchestrator(stepId(step, 'plan'), summary, orchestratorPolicy)
        .planStep({ ...this.owned, step, control: n })
        .catch((error: unknown) => {
          const control = forgottenControl(error);
          if (!control) throw error;
          this.desk.adopt(control);
          return null;
        });
    });
    if (!planned) throw new StepInterrupted();
    if (planned.faults) this.progress.status.faults = planned.faults;
    return planned;
  }

  private async collect(planned: PlannedStep, keep: Saving | null): Promise<JoinedRollouts> {
    this.progress.phase('collecting');
    let sampled = await collectOnAll(this, planned, keep);
    this.checkpoints.savedBeside(planned.step - 1, sampled);
    for (let wave = 1; planned.waves; wave++) {
      const { from, to } = await this.planWave(planned, wave);
      if (from === to) break;
      sampled = withWave(sampled, await collectOnAll(this, planned, null, { wave, from, to }));
    }
    return sampled;
  }

  /** Plans the step's next wave from the outcomes so far; the answer is empty if the step needs none. */
  private planWave({ step, plan }: PlannedStep, wave: number): Promise<PlannedWave> {
    const name = `wave-${wave}`;
    const plannedOnce = (): Promise<PlannedWave> => {
      this.samples.check();
      const summary = this.progress.summary(step, name);
      const { planWave } = orchestrator(stepId(step, name), summary, orchestratorPolicy);
      return planWave({ ...this.owned, ...{ step, plan, wave } });
    };
    return untilFixed(this.desk, this.progress, plannedOnce, throwWhereRecordsChanged);
  }

  /** Saves the state before a supervised step, which has no rollouts to save it beside. */
  private async saveAlone(step: number, keep: Saving | null): Promise<null> {
    if (keep) await this.checkpoints.save(step, keep);
    return null;
  }

  /** If no target can end the run, an interval evaluation runs beside the next step's rollouts on the same engine (R15). */
  private async evaluateBeside(step: number): Promise<void> {
    if (suiteDue(this.outline, step) === 'interval' && !this.mayEndAtTarget())
      await this.evaluate('interval');
  }

  private async evaluate(suite: 'interval' | 'final'): Promise<void> {
    const { step, progress } = this;
    if (progress.status.evaluations.some((known) => known.step === step && known.suite === suite)) return;
    progress.evaluating();
    // A pause has no effect at the end of the run, so it does not interrupt this evaluation.
    const work = this.endsHere() ? this.nodes : this.interruptible;
    const evaluated = await work.onNode((place) =>
      onEngine(
        place,
        stepId(step, `evaluate-${suite}`),
        progress.summary(step, `evaluate ${suite}`),
      ).evaluateState({ ...this.owned, step, suite }),
    );
    progress.evaluated(step, evaluated);
    const phase = phaseOf(this.opened.outline, step);
    const target = this.opened.outline.target_pass_at_1;
    const { pass_at_1 } = evaluated;
    const asked = suite === 'interval' && phase?.kind === 'grpo' && target > 0;
    if (asked && pass_at_1 !== null && pass_at_1 >= target) {
      log.info('The target is reached: the run ends here', { step, pass_at_1, target });
      this.progress.status.reachedTarget = target;
    }
  }

  private async watchApplied(committed: CommittedStep): Promise<void> {
    this.unapplied = committed.applied || committed.reason === noSignal ? 0 : this.unapplied + 1;
    if (this.unapplied < maxUnappliedSteps) return;
    this.unapplied = 0;
    const reason = `${maxUnappliedSteps} steps in a row changed nothing. Reason of the last step: ${committed.reason ?? 'none recorded'}`;
    const remedy = `${remedies.NoProgress}, or set a lower lr (longhaul set ${this.owned.run} lr=…)`;
    await blockedUntilResumed(this.desk, this.progress, reason, remedy);
  }

  private async watchGrades({ ungraded }: CommittedStep): Promise<void> {
    this.ungraded = ungraded === undefined ? 0 : this.ungraded + 1;
    if (ungraded === undefined || this.ungraded < maxUngradedSteps) return;
    this.ungraded = 0;
    const reason = `${maxUngradedSteps} steps in a row had too few grades. The last step: ${ungraded}`;
    await blockedUntilResumed(this.desk, this.progress, reason, remedies.NothingGraded);
  }

  /** Continues as new only at a step boundary, with no handler running and no upload in flight. The records hold all other state. */
  private async continueAsNewWhenDue(): Promise<void> {
    if (!workflowInfo().continueAsNewSuggested && !newBuildWaits()) return;
    await this.checkpoints.drained();
    await this.collections.givenUp();
    await condition(() => allHandlersFinished() && this.nodes.hasNotifiedAll);
    const carried: CarriedRun = {
      figures: this.progress.carried(),
      passedStop: this.desk.passedStop,
      unapplied: this.unapplied,
      ungraded: this.ungraded,
      leases: this.nodes.carried(),
    };
    await continueOnCurrentBuild<typeof trainingRun>(this.spec, { carried });
  }

  private async finish(): Promise<TrainingResult> {
    await this.checkpoints.keepLast(this.step);
    this.collections.startBeside(this.step);
    await this.evaluate('final');
    await this.nodes.released();
    await this.collections.last(this.step);
    this.progress.phase('reporting');
    await untilFixed(this.desk, this.progress, () => writeReport(this.progress, reportPolicy));
    const ended = this.step >= this.last || this.targetReached ? 'completed' : 'stopped';
    const budget = ended === 'stopped' && !this.stopReached() ? this.progress.spentBudget : null;
    this.progress.phase(ended);
    await condition(allHandlersFinished);
    const { run, step, state, evaluations, reachedTarget, report, tokens, sampleSeconds } =
      this.progress.status;
    const reached = reachedTarget === undefined ? {} : { reachedTarget };
    return { run, ended, step, state, evaluations, ...reached, report, budget, tokens, sampleSeconds };
  }
}
