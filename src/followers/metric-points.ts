// A run as a series of points, read from its records alone. A point is final once it can be read: updates never change, and of an
// evaluation the first result that was read counts, even if it is quarantined and played again later.
//
// Order: a step's point comes after those of all steps before it, and after the stored evaluations of the state before it, which are all
// that the run itself plays there (R15). A later evaluation is a point of its own, found when a reader restarts or the run is over. A
// fork's series begins after the step at which it left its parent.
import type { OwnerRecord, RunRecord } from '../spec/records/run-records.js';
import type { UpdateRecord } from '../spec/records/update.js';
import { runSuites } from '../spec/schedule.js';
import { inParallel } from '../base/in-parallel.js';
import { ownersFolder } from '../store/objects/layout.js';
import type { ObjectStore } from '../store/objects/object-store.js';
import { readSequence } from '../store/records/records.js';
import { readControl } from '../store/runs/control-records.js';
import { type FaultTotals, noFaults, projectFaults } from '../store/runs/fault-figures.js';
import { readUpdates } from '../store/runs/run-records.js';
import {
  evaluationPointId,
  type Delivered,
  type MetricPoint,
} from '../integrations/tracking/metric-point.js';
import { stepsAskedAt } from './asked-evaluations.js';
import { ofOwnStart } from './own-start.js';
import {
  beginningOf,
  evaluationsOf,
  heldAfter,
  type HeldState,
  openView,
  pageSteps,
  type RunView,
  stateAfter,
  updatesBehind,
} from './run-view.js';
import { evaluationPoint, plusStep, type RunningTotals, stepPoint } from './step-values.js';

/** One reader; each follower has its own, and keeps only the totals, which are costly to compute again. */
export class MetricPoints {
  /**
   * Totals after the steps of the page that was read last, and before its first. Replaced, never added to: a reading that its caller gave
   * up may still be under way beside the next one.
   */
  private totals: readonly RunningTotals[] = [];
  private owners: OwnerRecord[] = [];
  private held: HeldState | null = null;

  constructor(
    private readonly store: ObjectStore,
    private readonly run: string,
    known: RunningTotals | null = null,
  ) {
    if (known) this.totals = [known];
  }

  /** Totals after the last delivered step, for the next reader; null if they are not known. */
  totalsAfter({ step }: Delivered): RunningTotals | null {
    return this.totals.find((totals) => totals.step === step) ?? null;
  }

  /** The next points, in order; empty if there are no more yet. */
  async next(delivered: Delivered): Promise<MetricPoint[]> {
    const view = await openView(this.store, this.run);
    const position = delivered.step ?? beginningOf(view.record);
    let held = this.held?.steps.at(-1) === position ? this.held : await stateAfter(view, position);
    if (!held) return [];
    // Read before the evaluations: those stored when a step is committed are all that the run plays before it.
    const updates = await updatesBehind(view, position);
    let total = updates.length > 0 ? await this.addedUpTo(view, position) : noTotals(view.record);
    const totals = [total];
    const points = new Map<string, MetricPoint>();
    const add = (found: readonly MetricPoint[]): void => {
      for (const point of found) if (!points.has(point.id)) points.set(point.id, point);
    };
    add(await evaluationPoints(view, held, delivered));
    for (const update of await this.projected(view, total, updates)) {
      total = await this.plus(view, total, update);
      totals.push(total);
      add([stepPoint(update, total)]);
      held = heldAfter(held, update);
      add(await evaluationPoints(view, held, delivered));
    }
    if (updates.length > 0) this.totals = totals;
    this.held = held;
    return [...points.values()];
  }

  /** Evaluations that the run asked for and that were missing when their step was passed. For a reader's beginning. */
  async overdue(delivered: Delivered): Promise<MetricPoint[]> {
    const view = await openView(this.store, this.run);
    const first = beginningOf(view.record);
    const known = new Set(delivered.evaluations.map((id) => Number(/^eval\.([0-9]+)\./.exec(id)?.[1])));
    const asked = stepsAskedAt(view, first, delivered.step ?? first).filter((step) => !known.has(step));
    const found = await inParallel(asked, async (step) => {
      const held = await stateAfter(view, step);
      return held ? evaluationPoints(view, held, delivered) : [];
    });
    return [...new Map(found.flat().map((point) => [point.id, point])).values()];
  }

  /** A page of all undelivered evaluations of all delivered steps. For the end: it reads the whole run again. */
  async missed(delivered: Delivered): Promise<MetricPoint[]> {
    const view = await openView(this.store, this.run);
    const first = beginningOf(view.record);
    const last = delivered.step ?? first;
    const points = new Map<string, MetricPoint>();
    let held = await stateAfter(view, first);
    for (let step = first; held; step += pageSteps) {
      const updates = await readUpdates(view.store, this.run, step + 1, Math.min(last, step + pageSteps));
      const states = [held];
      for (const update of updates) {
        const after = heldAfter(states.at(-1) ?? held, update);
        if (update.identity.applied !== true) states.pop();
        states.push(after);
      }
      for (const found of await inParallel(states, (one) => evaluationPoints(view, one, delivered)))
        for (const point of found) points.set(point.id, point);
      held = states.at(-1) ?? held;
      if (step + pageSteps >= last || points.size >= pageSteps) break;
    }
    return [...points.values()];
  }

  /** Totals after `position`: as handed over, or computed from the run's first step. */
  private async addedUpTo(view: RunView, position: number): Promise<RunningTotals> {
    // Read after the updates: a later owner has planned none of them.
    this.owners = await readSequence(this.store, ownersFolder(this.run), 'owner', this.owners);
    let total = this.totals.findLast((totals) => totals.step <= position) ?? noTotals(view.record);
    while (total.step < position) {
      const end = Math.min(position, total.step + pageSteps);
      const updates = await readUpdates(view.store, this.run, total.step + 1, end);
      for (const update of await this.projected(view, total, updates))
        total = await this.plus(view, total, update);
      this.totals = [total];
    }
    return total;
  }

  private async projected(
    { store, record }: RunView,
    before: FaultTotals,
    updates: readonly UpdateRecord[],
  ): Promise<UpdateRecord[]> {
    // Read after the updates, so that it includes each control record before one of them.
    const control = await readControl(store, this.run);
    return projectFaults(store, { record, control, owners: this.owners }, before, updates);
  }

  private async plus(view: RunView, before: RunningTotals, update: UpdateRecord): Promise<RunningTotals> {
    return plusStep(before, update, await ofOwnStart(view.store, update, this.owners, priceOf));
  }
}

/** Points of the evaluations that are not delivered yet. */
async function evaluationPoints(
  view: RunView,
  held: HeldState,
  delivered: Delivered,
): Promise<MetricPoint[]> {
  const isDelivered = (steps: readonly number[], suite: string): boolean =>
    steps.some((step) => runSuites.some((name) => delivered.has(evaluationPointId(step, name, suite))));
  const found = await evaluationsOf(view, held, isDelivered);
  return found.map(({ step, result }) => evaluationPoint(step, result));
}

function noTotals(record: RunRecord): RunningTotals {
  return { ...noFaults(record), tokens: 0, gpu_seconds: 0, usd: 0 };
}

function priceOf(owner: OwnerRecord | undefined): number {
  return owner?.observed.budget?.usd_per_gpu_hour ?? 0;
}
