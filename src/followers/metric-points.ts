// A run as a series of points, read from its records alone. A point is final once it can be read: updates never change, and of an
// evaluation the first result that was read counts, should it be quarantined and played again.
//
// Order: a step's point comes after those of all steps before it, and after the evaluations of the state before it that are there
// by then, which is all that the run itself plays there (R15). An evaluation that comes later all the same is a point of its own,
// found when the run is over or a reader begins anew. A fork's series begins behind the step that it left its parent after.
import type { EvaluationResult } from '../spec/evaluation-records.js';
import type { ControlRecord, Digest, OwnerRecord, RunRecord, UpdateRecord } from '../spec/records.js';
import { readControl } from '../store/control-records.js';
import { inParallel } from '../store/in-parallel.js';
import { evaluationResultKey, evaluationsOfState, ownersFolder, updateKey } from '../store/layout.js';
import type { ObjectStore } from '../store/object-store.js';
import { openRunView } from '../store/quarantine.js';
import { readRecord, readSequence } from '../store/records.js';
import { readPlan, readRun, readUpdate, readUpdateIfAny } from '../store/run-records.js';
import { NewerSchema, OlderSchema, UnreadableRecord } from '../store/store-errors.js';
import { evaluationPointId, type Delivered, type MetricPoint } from '../integrations/tracking/metric-point.js';
import { bySuite, stepOfResult } from './asked-evaluations.js';
import { evaluationPoint, plusStep, type RunningTotals, stepPoint } from './step-values.js';

/** Updates that are read at once, and so the most that is held. */
const PAGE_STEPS = 32;

/** A state of the run and the steps after which it has it: more than one where a step was not applied. */
interface HeldState {
  state: Digest;
  steps: number[];
}

/** As of one reading: the store without what is quarantined, and what people have asked of the run by then. */
interface View {
  store: ObjectStore;
  record: RunRecord;
  control: readonly ControlRecord[];
}

/** One reader; whoever follows has its own, and nothing of it is kept but the totals, to spare adding up anew. */
export class MetricPoints {
  /** Totals after steps of the page that was read last, ascending. */
  #totals: RunningTotals[] = [];
  #owners: OwnerRecord[] = [];
  #held: HeldState | null = null;

  constructor(
    private readonly store: ObjectStore,
    private readonly run: string,
    known: RunningTotals | null = null,
  ) {
    if (known) this.#totals = [known];
  }

  /** Totals after the last step that was delivered, to be handed to the next reader; null where they are not known. */
  totalsAfter({ step }: Delivered): RunningTotals | null {
    return this.#totals.find((totals) => totals.step === step) ?? null;
  }

  /** The next points, in order; none: there are no more yet. */
  async next(delivered: Delivered): Promise<MetricPoint[]> {
    const view = await this.#view();
    const position = delivered.step ?? firstStep(view.record);
    let held = await this.#stateAfter(view, position);
    if (!held) return [];
    // Read before the evaluations: what is there when a step is committed is all that the run plays before it.
    const updates = await this.#updatesBehind(view, position);
    if (updates.length > 0) await this.#addUpTo(view, position);
    const points = new Map<string, MetricPoint>();
    const add = (found: readonly MetricPoint[]): void => {
      for (const point of found) if (!points.has(point.id)) points.set(point.id, point);
    };
    add(await this.#evaluations(view, held, delivered));
    for (const update of updates) {
      add([stepPoint(update, await this.#plus(view, update))]);
      held = heldAfter(held, update);
      add(await this.#evaluations(view, held, delivered));
    }
    this.#held = held;
    return [...points.values()];
  }

  /**
   * Evaluations that were not there when their step was passed: a page of them, of all steps delivered. For a reader's beginning,
   * and for the end.
   */
  async missed(delivered: Delivered): Promise<MetricPoint[]> {
    const view = await this.#view();
    const last = delivered.step ?? firstStep(view.record);
    const points = new Map<string, MetricPoint>();
    let held = await this.#stateAfter(view, firstStep(view.record));
    for (let step = firstStep(view.record); held; step += PAGE_STEPS) {
      const steps = stepsFrom(step + 1, Math.min(last, step + PAGE_STEPS));
      const updates = await inParallel(steps, (one) => readUpdate(view.store, this.run, one));
      const states = [held];
      for (const update of updates) {
        const after = heldAfter(states.at(-1) ?? held, update);
        if (update.identity.applied !== true) states.pop();
        states.push(after);
      }
      for (const found of await inParallel(states, (one) => this.#evaluations(view, one, delivered)))
        for (const point of found) points.set(point.id, point);
      held = states.at(-1) ?? held;
      if (step + PAGE_STEPS >= last || points.size >= PAGE_STEPS) break;
    }
    return [...points.values()];
  }

  async #view(): Promise<View> {
    const record = await readRun(this.store, this.run);
    const store = await openRunView(this.store, this.run);
    return { store, record, control: await readControl(this.store, this.run) };
  }

  /** A page of committed updates; one look where there is none. */
  async #updatesBehind({ store }: View, position: number): Promise<UpdateRecord[]> {
    const next = await readUpdateIfAny(store, this.run, position + 1);
    if (!next) return [];
    const rest = await inParallel(stepsFrom(position + 2, position + PAGE_STEPS), (step) =>
      readUpdateIfAny(store, this.run, step),
    );
    const end = rest.indexOf(null);
    return [next, ...rest.slice(0, end < 0 ? rest.length : end).filter((update) => update !== null)];
  }

  /** Null before the base model is recorded. */
  async #stateAfter(view: View, step: number): Promise<HeldState | null> {
    if (this.#held?.steps.at(-1) === step) return this.#held;
    const steps = [step];
    for (let one = step; one > firstStep(view.record); one--) {
      const { identity } = await readUpdate(view.store, this.run, one);
      if (identity.applied === true) return { state: identity.state, steps };
      steps.unshift(one - 1);
    }
    if (view.record.lineage) return { state: view.record.lineage.state, steps };
    const base = await readRecord(view.store, updateKey(this.run, 0), 'base');
    return base && { state: base.identity.state, steps };
  }

  /** Points of a state's evaluations that are the run's and not delivered. A result that cannot be read is looked at again later. */
  async #evaluations(view: View, held: HeldState, delivered: Delivered): Promise<MetricPoint[]> {
    const folder = evaluationsOfState(held.state);
    const suites = (await view.store.listFolder(folder)).map((name) => name.replace(/\/$/, ''));
    const unknown = suites.filter((suite) => !isDelivered(delivered, held.steps, suite));
    if (unknown.length === 0) return [];
    const results = (
      await inParallel(suites, (suite) => readResult(view.store, evaluationResultKey(held.state, suite)))
    ).filter((result) => result !== null);
    const points = await inParallel(results.sort(bySuite), async (result) => {
      const step = await stepOfResult(view.store, view, held.steps, result, results);
      return step === null ? null : evaluationPoint(step, result);
    });
    return points.filter((point) => point !== null).filter(({ id }) => !delivered.has(id));
  }

  /** Totals after `position`: as they were handed over, or added up from the run's first step. */
  async #addUpTo(view: View, position: number): Promise<void> {
    // Read after the updates: whoever starts later has planned none of them.
    this.#owners = await readSequence(this.store, ownersFolder(this.run), 'owner', this.#owners);
    const known = this.#totals.findLast((totals) => totals.step <= position) ?? noTotals(view.record);
    this.#totals = [known];
    for (let after = known.step; after < position; after += PAGE_STEPS) {
      const steps = stepsFrom(after + 1, Math.min(position, after + PAGE_STEPS));
      const updates = await inParallel(steps, (step) => readUpdate(view.store, this.run, step));
      for (const update of updates) await this.#plus(view, update);
      this.#totals = this.#totals.slice(-1);
    }
  }

  async #plus(view: View, update: UpdateRecord): Promise<RunningTotals> {
    const before = this.#totals.at(-1) ?? noTotals(view.record);
    const totals = plusStep(before, update, await this.#price(view, update));
    this.#totals.push(totals);
    return totals;
  }

  /** US$ an hour, as the start that planned the step was given it. One price for all starts, the usual, needs no look at the plan. */
  async #price({ store }: View, { identity }: UpdateRecord): Promise<number> {
    if (new Set(this.#owners.map(priceOf)).size <= 1) return priceOf(this.#owners[0]);
    const { owner } = (await readPlan(store, this.run, identity.step, identity.plan)).record;
    return priceOf(this.#owners[owner - 1]);
  }
}

/** Unreadable bytes of an evaluation hold up no step's point: they are quarantined, and then there is another result. */
async function readResult(store: ObjectStore, key: string): Promise<EvaluationResult | null> {
  try {
    return await readRecord(store, key, 'evaluation');
  } catch (error) {
    if (error instanceof UnreadableRecord || error instanceof OlderSchema || error instanceof NewerSchema) return null;
    throw error;
  }
}

function isDelivered(delivered: Delivered, steps: readonly number[], suite: string): boolean {
  return steps.some((step) =>
    ['interval', 'final'].some((name) => delivered.has(evaluationPointId(step, name, suite))),
  );
}

function heldAfter(before: HeldState, { identity }: UpdateRecord): HeldState {
  const { step, state, applied } = identity;
  return applied === true ? { state, steps: [step] } : { state, steps: [...before.steps, step] };
}

/** After which the run's own steps begin. */
function firstStep({ lineage }: RunRecord): number {
  return lineage?.step ?? 0;
}

function noTotals(record: RunRecord): RunningTotals {
  return { step: firstStep(record), tokens: 0, gpu_seconds: 0, usd: 0 };
}

function priceOf(owner: OwnerRecord | undefined): number {
  return owner?.observed.budget?.usd_per_gpu_hour ?? 0;
}

function stepsFrom(first: number, last: number): number[] {
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => first + index);
}
