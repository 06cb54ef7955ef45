// A run as a series of points, read only from its records. A point that can be read never changes: updates are final, and the first result
// of an evaluation that was read stays, even if it is quarantined and played again later.
//
// Order: a step's point comes after the points of all earlier steps, and after the evaluations of the state before it that are stored when
// the step is committed; the run itself plays no later ones (R15). An evaluation that is stored later is found when a reader restarts or
// when the run is over. A fork's series begins after the step at which it left its parent.
import type { OwnerRecord, RunRecord } from '../../spec/records/run-records.js';
import type { UpdateRecord } from '../../spec/records/update.js';
import type { Prices } from '../../rl/spending.js';
import { runSuites } from '../../spec/schedule.js';
import { inParallel } from '../../base/in-parallel.js';
import { ownersFolder } from '../../store/record-keys.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { readSequence } from '../../store/records/records.js';
import { readControl } from '../../store/runs/control-records.js';
import { type FaultTotals, noFaults, projectFaults } from '../../store/runs/fault-figures.js';
import { readUpdates } from '../../store/runs/run-records.js';
import {
  evaluationPointId,
  type Delivered,
  type MetricPoint,
} from '../../integrations/tracking/metric-point.js';
import { ofOwnStart, stepsAskedAt } from './asked-evaluations.js';
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

/** Reads points. Each follower has its own reader, and stores only the totals, which are costly to compute again. */
export class MetricPoints {
  /**
   * Totals before the first step of the last page, and after each of its steps. The list is replaced and never changed: a read that timed
   * out may still run beside the next one.
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

  /** Totals after the last delivered step, to be stored for the next reader; null if unknown. */
  totalsAfter({ step }: Delivered): RunningTotals | null {
    return this.totals.find((totals) => totals.step === step) ?? null;
  }

  /** The next points in order; empty if there are none yet. */
  async next(delivered: Delivered): Promise<MetricPoint[]> {
    const view = await openView(this.store, this.run);
    const position = delivered.step ?? beginningOf(view.record);
    let held = this.held?.steps.at(-1) === position ? this.held : await stateAfter(view, position);
    if (!held) return [];
    // Updates are read before evaluations: when a step is committed, all evaluations that the run plays before it are stored.
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

  /** Evaluations that the run asked for but that were not stored when their step was delivered. For a reader that starts. */
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

  /** A page of the undelivered evaluations of all delivered steps. Only for the end of a run, because it reads the whole run again. */
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

  /** Totals after `position`: known totals, or totals computed from the run's first step. */
  private async addedUpTo(view: RunView, position: number): Promise<RunningTotals> {
    // Owners are read after the updates: an owner that appears later has planned none of these steps.
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
    // Control is read after the updates, so it includes each control record that came before one of these steps.
    const control = await readControl(store, this.run);
    return projectFaults(store, { record, control, owners: this.owners }, before, updates);
  }

  private async plus(view: RunView, before: RunningTotals, update: UpdateRecord): Promise<RunningTotals> {
    return plusStep(before, update, await ofOwnStart(view.store, update, this.owners, pricesOf));
  }
}

/** Points of the state's evaluations that are not delivered yet. */
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

function pricesOf(owner: OwnerRecord | undefined): Prices {
  const { usd_per_gpu_hour, usd_per_million } = owner?.observed.budget ?? {};
  return {
    ...(usd_per_gpu_hour === undefined ? {} : { usd_per_gpu_hour }),
    ...(usd_per_million ? { usd_per_million } : {}),
  };
}
