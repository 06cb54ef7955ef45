// The workflow of a sweep: evaluates every pair of a state and a suite once, on leased nodes, then compares them. The records hold the
// results, so a sweep that was cancelled, lost or restarted evaluates only what is missing.
import {
  allHandlersFinished,
  CancellationScope,
  condition,
  isCancellation,
  log,
  proxyActivities,
  setCurrentDetails,
  setHandler,
  sleep,
  workflowInfo,
  type ActivityOptions,
} from '@temporalio/workflow';
import { standsStill } from '../activity-failures.js';
import { engineQueue } from '../messages.js';
import { continueOnCurrentBuild, newBuildWaits } from '../continue-as-new.js';
import {
  enginePolicy,
  openRunPolicy,
  orchestratorPolicy,
  reportPolicy,
  standstillPause,
  sweeping,
} from '../policies.js';
import { stepId } from '../run-activities.js';
import type {
  FailedPair,
  MissingPair,
  PairToDo,
  PlannedSweep,
  SweepActivities,
  SweepNodeActivities,
} from '../../activities/sweep-contracts.js';
import {
  sweepDetails,
  sweepOfWorkflow,
  type SweepResult,
  type SweepStatus,
  sweepStatusQuery,
} from './sweep-messages.js';
import { SweepFailures } from './sweep-failures.js';
import { SweepNodes, type SweepWork } from './sweep-nodes.js';

interface SweepOptions {
  /** Set only by continue-as-new. */
  carried?: CarriedSweep;
}

interface CarriedSweep {
  /** Number of the last pair up to which every pair has a result or has failed. */
  seen: number;
  episodes: number;
  failed: FailedPair[];
}

/** Lower than a run's priority: a sweep uses only nodes that no run needs. */
const priority = -1;

/** Workflow id `eval/{name}`; if a schedule starts it, its start time is appended. The input is a sweep spec as JSON. */
export async function evalSweep(spec: unknown, options: SweepOptions = {}): Promise<SweepResult> {
  const { workflowId } = workflowInfo();
  const sweep = sweepOfWorkflow(workflowId);
  const status: SweepStatus = {
    sweep,
    phase: 'planning',
    pairs: 0,
    done: 0,
    episodes: options.carried?.episodes ?? 0,
    running: [],
    waitsFor: null,
    failed: options.carried?.failed ?? [],
    report: null,
    alarms: [],
    gaps: [],
  };
  setHandler(sweepStatusQuery, () => status, { description: 'Progress of the sweep' });
  const planned = await orchestrator('plan', 'choose checkpoints and tasks', openRunPolicy).planSweep({
    spec,
    sweep,
  });
  return new SweepLoop(spec, planned, status, options.carried).run();
}

function orchestrator(activityId: string, summary: string, policy: ActivityOptions) {
  return proxyActivities<SweepActivities>({ ...policy, activityId, summary });
}

class SweepLoop implements SweepWork<MissingPair> {
  private readonly nodes: SweepNodes;
  private window: MissingPair[] = [];
  private exhausted = false;
  private reading: Promise<void> | null = null;
  private seen: number;
  /** Numbers of the pairs that are being evaluated. */
  private readonly open = new Set<number>();
  /** How many tries of a pair ended without a result. Part of the activity's id: the id of a lost try may still be in use. */
  private readonly tries = new Map<number, number>();
  private readonly failures: SweepFailures;

  constructor(
    private readonly spec: unknown,
    private readonly planned: PlannedSweep,
    private readonly status: SweepStatus,
    carried: CarriedSweep | undefined,
  ) {
    const { sweep, project, suitesOf, parallel } = planned;
    // The name in the pool's view; it must have the form of a run's name.
    const run = (sweep.split('/').at(-1) ?? sweep).slice(0, 64);
    this.failures = new SweepFailures(status.failed);
    this.seen = carried?.seen ?? -1;
    status.pairs = planned.pairs;
    const holder = { run, project, numericsOf: suitesOf, placement: { priority, nodes: parallel } };
    this.nodes = new SweepNodes(holder, () => this.show());
    this.nodes.listen();
  }

  async run(): Promise<SweepResult> {
    try {
      this.phase('evaluating');
      await this.evaluateAll();
      await this.nodes.released();
      if (!this.givenUp && !this.isDone()) await this.continueAsNew();
      return await this.finish();
    } catch (error) {
      await this.nodes.released();
      if (isCancellation(error)) this.phase('cancelled');
      throw error;
    }
  }

  /** When the first failure since the last success occurred; null if there was none. Only failures that may pass count. */
  private failingSince: number | null = null;

  /** True if the sweep leaves the remaining pairs to its next start. */
  private get givenUp(): boolean {
    return this.failures.areEverywhere(this.window);
  }

  /** Also true while pairs are unread: a worker without a lease must not wait for another worker to read them. */
  hasMore(): boolean {
    return this.window.length > 0 || !this.exhausted;
  }

  isOver(): boolean {
    return this.rests() || this.isDone();
  }

  private isDone(): boolean {
    return this.exhausted && this.window.length === 0 && this.open.size === 0;
  }

  /** True if this execution starts no further pair. */
  private rests(): boolean {
    return this.givenUp || workflowInfo().continueAsNewSuggested || newBuildWaits();
  }

  /** Starts `parallel` workers; if one worker throws, the other workers are cancelled. */
  private async evaluateAll(): Promise<void> {
    await CancellationScope.cancellable(async () => {
      const scope = CancellationScope.current();
      // The sweep requests a node only when it knows of a missing pair.
      await this.fill();
      const workers = Array.from({ length: this.planned.parallel }, () =>
        this.nodes.serve(this).catch((error: unknown) => {
          scope.cancel();
          throw error;
        }),
      );
      const outcomes = await Promise.allSettled(workers);
      const failure = outcomes.find((outcome) => outcome.status === 'rejected');
      if (failure) throw failure.reason as Error;
    });
  }

  async next(): Promise<MissingPair | null> {
    await this.fill();
    const pair = this.rests() ? null : (this.failures.take(this.window) ?? null);
    if (pair) this.open.add(pair.n);
    return pair;
  }

  /** Reads more pairs until the window holds a pair that is not put aside, or until all pairs are read. */
  private async fill(): Promise<void> {
    while (this.window.every((pair) => this.failures.isPutAside(pair)) && !this.exhausted && !this.rests()) {
      this.reading ??= this.read().finally(() => (this.reading = null));
      await this.reading;
    }
  }

  lost(pair: MissingPair): void {
    this.open.delete(pair.n);
    this.tries.set(pair.n, this.triesOf(pair) + 1);
    this.window.unshift(pair);
    this.status.running = this.status.running.filter(({ n }) => n !== pair.n);
    this.show();
  }

  private async read(): Promise<void> {
    const { sweep } = this.planned;
    const activities = orchestrator(
      `pairs-${this.seen + 1}`,
      'find the evaluations that are missing',
      orchestratorPolicy,
    );
    const { pairs, seen } = await activities.pairsToDo({
      sweep,
      after: this.seen,
      limit: sweeping.windowPairs,
    });
    this.window.push(...pairs.filter((pair) => !this.failures.has(pair)));
    this.seen = seen;
    this.exhausted = seen >= this.planned.pairs - 1;
    this.show();
  }

  private triesOf({ n }: PairToDo): number {
    return this.tries.get(n) ?? 0;
  }

  /** Evaluates a pair. If a lost node answers late, its answer is dropped, because another try has the pair by then. */
  async work(node: string, { missing, ...pair }: MissingPair): Promise<void> {
    const entry = { ...pair, node };
    this.status.running.push(entry);
    this.show();
    try {
      for (
        let pauseMs = standstillPause.firstMs;
        ;
        pauseMs = Math.min(2 * pauseMs, standstillPause.longestMs)
      ) {
        if (await this.evaluate(node, { missing, ...pair })) return;
        // Another activity id, because the server still knows the failed one.
        const tries = this.triesOf(pair) + 1;
        this.tries.set(pair.n, tries);
        await sleep(pauseMs);
        if (tries !== this.triesOf(pair)) return;
      }
    } finally {
      this.status.running = this.status.running.filter((one) => one !== entry);
      this.show();
    }
  }

  /** Returns false if the failure may pass, so that the pair is tried again after a pause. */
  private async evaluate(node: string, { missing, ...pair }: MissingPair): Promise<boolean> {
    const { sweep } = this.planned;
    const tries = this.triesOf(pair);
    try {
      await proxyActivities<SweepNodeActivities>({
        ...enginePolicy,
        taskQueue: engineQueue(node),
        priority: { fairnessKey: this.planned.project },
        activityId: stepId(pair.step, `evaluate-sweep-${pair.n}${tries === 0 ? '' : `.${tries}`}`),
        summary: `${pair.run} step ${pair.step} · ${pair.suite} · ${pair.n + 1} of ${this.planned.pairs}`,
      }).evaluatePair({ sweep, pair: pair.n });
      if (tries !== this.triesOf(pair)) return true;
      this.failures.succeeded();
      this.failingSince = null;
      this.status.episodes += missing;
      this.open.delete(pair.n);
    } catch (error) {
      if (isCancellation(error) || isTimeout(error)) throw error;
      if (tries !== this.triesOf(pair)) return true;
      const reason = reasonOf(error);
      if (standsStill(error)) {
        this.failingSince ??= Date.now();
        if (Date.now() - this.failingSince < sweeping.patienceMs) {
          log.warn('An evaluation keeps failing', { ...pair, reason });
          return false;
        }
      }
      log.warn('A state cannot be evaluated', { ...pair, reason });
      this.failures.add(pair, reason);
      this.open.delete(pair.n);
    }
    return true;
  }

  private async continueAsNew(): Promise<void> {
    await condition(allHandlersFinished);
    const { episodes, failed } = this.status;
    const left = [...this.open, ...this.window.map(({ n }) => n)];
    const seen = Math.min(this.seen, ...left.map((n) => n - 1));
    const carried: CarriedSweep = { seen, episodes, failed };
    await continueOnCurrentBuild<typeof evalSweep>(this.spec, { carried });
  }

  private async finish(): Promise<SweepResult> {
    const { status, planned } = this;
    this.phase('comparing');
    const { failed } = status;
    const {
      report,
      alarms,
      gaps = [],
      table,
    } = await orchestrator('compare', 'compare the finished evaluations', reportPolicy).compareSweep({
      sweep: planned.sweep,
      failed,
    });
    Object.assign(status, { report, alarms, gaps });
    const ended = failed.length + gaps.length === 0 && !this.givenUp ? 'completed' : 'incomplete';
    this.phase(ended);
    await condition(allHandlersFinished);
    const { pairs, episodes } = status;
    return { sweep: planned.sweep, ended, pairs, episodes, failed, report, alarms, gaps, table };
  }

  private phase(phase: SweepStatus['phase']): void {
    this.status.phase = phase;
    this.show();
  }

  private show(): void {
    const { status } = this;
    // Pairs up to `seen` that are neither in the window nor running nor failed have a result.
    status.done = Math.max(
      0,
      this.seen + 1 - this.window.length - status.running.length - status.failed.length,
    );
    status.waitsFor = status.phase === 'evaluating' ? this.nodes.waitsFor : null;
    setCurrentDetails(sweepDetails(status, workflowInfo().workflowId));
  }
}

/** True if the node did not take the activity in time. */
function isTimeout(error: unknown): boolean {
  const cause = (error as { cause?: { timeoutType?: string } }).cause;
  return cause?.timeoutType === 'SCHEDULE_TO_START';
}

function reasonOf(error: unknown): string {
  const { cause, message } = error as { cause?: { message?: string }; message?: string };
  return (cause?.message ?? message ?? String(error)).split('\n')[0]?.slice(0, 300) ?? '';
}
