// A run's models on a Tinker server: the one that this process trains, the one that this node's last process left, or a new one; and one that is
// only sampled (R33, R35).
import { TinkerRefused } from '../../engine/tinker/call-errors.js';
import type { WaitOptions } from '../../engine/tinker/futures.js';
import type { TinkerEngine } from '../../engine/tinker/sampling.js';
import { itemOf, sentFor } from '../../engine/tinker/sent-tokens.js';
import { type CreatedModel, isFull, type TinkerService } from '../../engine/tinker/service.js';
import type { Digest } from '../../spec/records/parts.js';
import type { RunRecord } from '../../spec/records/run-records.js';
import type { InstanceRecord, SavedStateRecord } from '../../spec/records/served-model.js';
import type { RunSpec } from '../../spec/run-spec.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { openRunView } from '../../store/runs/quarantine.js';
import { readState } from '../../store/runs/run-records.js';
import {
  isTrained,
  readModels,
  readTrained,
  recordApplied,
  recordGivenUp,
  recordInstance,
  recordSavedState,
} from '../../store/runs/served-models.js';
import type { StateReader } from '../state-keeper.js';
import { problemOfLoad } from './loaded-state.js';
import { InstanceGivenUp, isDoubtful } from './given-up.js';
import { ServedInstance } from './served-instance.js';
import type { ServedLog } from './served-log.js';
import { isSaved, servedOf } from './step-requests.js';

interface ServedInstancesOptions {
  store: ObjectStore;
  service: TinkerService;
  engine: TinkerEngine;
  /** Node: nobody else uses the models that it makes. */
  by: string;
  log: (message: string) => void;
}

/** Each new model unloads earlier ones, so at most these few can be left. */
const mostUnloaded = 3;
/** A model that is not wanted any more. What is not unloaded by then ends with its session. */
const endWithinMs = 20_000;

/** What this process drives. */
interface Driven {
  run: string;
  instance: ServedInstance;
}

/** What a model is to begin with. */
interface Beginning extends Required<Creation> {
  from: number;
  /** Null: fresh adapters. */
  saved: SavedStateRecord | null;
  /** Newer states that did not load. */
  passedOver: string[];
}

interface Creation {
  /** Without moments, if no update lies between the saved state and the wanted one: a training phase begins so. */
  zeroMoments?: boolean;
  /** A model that is only sampled. It is none of those that are trained (R33): it leaves them alone, and no record counts its batches. */
  evaluates?: boolean;
}

export class ServedInstances {
  /** The model that this process trains. */
  driven: Driven | null = null;
  /** The model from which this process samples a state that the trained one does not hold. */
  private evaluating: Driven | null = null;
  /** Models that are not used any more, by the server's ids. */
  private readonly givenUp = new Set<string>();
  /** Those that this process has unloaded. */
  private readonly unloaded = new Set<string>();
  /** Saved states that did not load, as `placeOf` says: each try costs a model. */
  private readonly lost = new Set<string>();

  constructor(
    private readonly options: ServedInstancesOptions,
    private readonly log: ServedLog,
  ) {}

  /** The run's trained model, holding the state after `step`: this process's own, the one that this node left, or a new one. */
  async toTrain(record: RunRecord, step: number, options: WaitOptions): Promise<ServedInstance> {
    const { run } = record;
    const own = this.driven?.run === run ? this.driven.instance : null;
    if (own?.holds && own.holds.step <= step) {
      await this.refuseOlder(run, own.record);
      this.keepAlive(own.record);
      return this.goOn(record, own, step, options);
    }
    if (this.driven && this.driven.run !== run) this.leave();
    const resumed = own ? null : await this.resumed(record, step);
    if (!resumed) return this.create(record, step, options);
    this.driven = { run, instance: resumed };
    return this.goOn(record, resumed, step, options);
  }

  /**
   * A model whose state after `step` can be sampled. For the run itself its trained model may be made, unless a later update may be in it.
   */
  async toSample(
    record: RunRecord,
    step: number,
    reader: StateReader,
    options: WaitOptions,
  ): Promise<ServedInstance> {
    const { run } = record;
    const isHeld = this.driven?.run === run && this.driven.instance.holds?.step === step;
    if ((reader === 'run' || isHeld) && !(await this.log.mayBePast(run, step)))
      return this.toTrain(record, step, options);
    const own = this.evaluating?.run === run ? this.evaluating.instance : null;
    if (own?.holds && own.holds.step <= step) {
      this.keepAlive(own.record);
      return this.goOn(record, own, step, options);
    }
    return this.create(record, step, options, { evaluates: true });
  }

  /** Applies the logged batches up to `step`. */
  private async goOn(
    record: RunRecord,
    begun: ServedInstance,
    step: number,
    options: WaitOptions,
  ): Promise<ServedInstance> {
    const { store, engine, by } = this.options;
    const { run } = record;
    let instance = begun;
    for (let next = (instance.holds?.step ?? step) + 1; next <= step; next++) {
      engine.sampled = null;
      const logged = await this.log.step(run, next);
      const state = await readState(store, run, next);
      if (logged === null) {
        instance.skip({ step: next, state });
        continue;
      }
      if (logged.plan.optimizer.reset_moments && !instance.hasZeroMoments)
        instance = await this.beginPhase(record, next - 1, options, !isTrained(instance.record));
      this.options.log(`${run}: the logged batch of step ${next} is applied again`);
      await this.guarded(instance, async () => {
        // A phase begins with a load: a model that is only sampled saves that state alone.
        const saves = isTrained(instance.record)
          ? isSaved(record.spec, next)
          : await this.log.precedesPhase(run, next);
        const before = await this.log.checkOf(run, next - 1);
        const { saved, served } = await sentFor({ run, item: itemOf.update(next) }, () =>
          instance.apply({ ...logged, before, saves }, options),
        );
        if (saved) await this.recordSaved(run, { step: next, state }, saved, instance.record);
        if (!isTrained(instance.record)) return;
        const { instance: n, requests } = served;
        await recordApplied(await openRunView(store, run), {
          run,
          instance: n,
          step: next,
          step_id: logged.stepId,
          requests,
          by,
        });
      });
    }
    return instance;
  }

  /**
   * The newest trained model as this node's last process left it, if it can hold the state after `step`: at the newest step that the records
   * say it has taken. What it was sent after that is sent again under the same numbers. Another node's process may be alive, and sample older
   * weights into its model: that one is never used.
   */
  private async resumed(record: RunRecord, step: number): Promise<ServedInstance | null> {
    const { store, service, by } = this.options;
    const { run, spec } = record;
    const newest = (await readTrained(store, run)).at(-1);
    if (!newest || newest.ended || newest.record.node !== by) return null;
    const instance = newest.record;
    if (instance.step > step || this.givenUp.has(instance.model)) return null;
    const taken = await this.log.taken(instance, step);
    if (await this.log.hasNonFinite(run, taken.step + 1, step)) return null;
    if (!servedOf(spec).numbered) {
      // A batch that was sent would be sent twice.
      const wasSent =
        (await this.log.hasApplied(run, taken.step + 1, step)) || (await this.log.mayBePast(run, step));
      if (wasSent) return null;
    }
    const holds = { step: taken.step, state: await readState(store, run, taken.step) };
    this.keepAlive(instance);
    this.options.log(`${run} goes on with ${instance.model} on the server, at step ${taken.step}`);
    return new ServedInstance(instance, spec, service, holds, taken.requests + 1, taken.again);
  }

  /** A new model for the first update of a training phase: it holds the state after `step`, and no moments. */
  async beginPhase(
    record: RunRecord,
    step: number,
    options: WaitOptions,
    evaluates = false,
  ): Promise<ServedInstance> {
    const creation = { zeroMoments: true, evaluates };
    const first = await this.create(record, step, options, creation);
    if (first.hasZeroMoments) return first;
    // An older state was loaded, and the updates after it have made moments. They also saved the state again.
    const second = await this.create(record, step, options, creation);
    if (second.hasZeroMoments) return second;
    await this.giveUp(second);
    throw new InstanceGivenUp(
      `the state of step ${step}, with which a training phase begins, cannot be loaded`,
    );
  }

  /** A new model that holds the state after `step`: from the newest saved state at or before it that loads. */
  async create(
    record: RunRecord,
    step: number,
    options: WaitOptions,
    { zeroMoments = false, evaluates = false }: Creation = {},
  ): Promise<ServedInstance> {
    const { run } = record;
    const before = evaluates ? this.evaluating : this.driven;
    if (before) await this.giveUp(before.instance);
    await this.endEarlier(run, options, evaluates);
    const passedOver: string[] = [];
    for (let from = step, isUpdated = false; ; from--) {
      const states = from === 0 ? [null] : (await this.log.savedAt(run, from)).reverse();
      for (const saved of states) {
        const beginning = { from, saved, passedOver, evaluates, zeroMoments: zeroMoments && !isUpdated };
        const begun = await this.begun(record, beginning, options);
        if (begun) return this.goOn(record, begun, step, options);
        if (saved) passedOver.push(saved.path);
      }
      isUpdated ||= zeroMoments && (await this.log.isApplied(run, from));
    }
  }

  /** A new model as it begins; null if the saved state does not load. It is recorded once it holds what its record says: a successor would not load it again. */
  private async begun(
    record: RunRecord,
    { from, saved, passedOver, evaluates, zeroMoments }: Beginning,
    options: WaitOptions,
  ): Promise<ServedInstance | null> {
    const { store, service, by, log } = this.options;
    const { run, spec } = record;
    if (saved && this.lost.has(placeOf(saved.path, from))) return null;
    const created = await this.createModel(spec, options, evaluates);
    const { model } = created;
    const moments = zeroMoments && saved !== null ? { moments: 'zero' as const } : {};
    try {
      if (saved) {
        const target = { model, saved, optimizer: !('moments' in moments) };
        const problem = await problemOfLoad({ service, log: this.log }, record, target, options);
        if (problem !== null) {
          log(`${run}: ${saved.path}, the saved state of step ${from}, ${problem}: an older one is used`);
          this.lost.add(placeOf(saved.path, from));
          this.abandon(created);
          await this.unload(model, options);
          return null;
        }
      }
      const holds = { step: from, state: await readState(store, run, from) };
      const again = saved !== null && (await this.log.isAppliedAgain(run, saved));
      const instance = await recordInstance(store, {
        ...{ run, ...created, step: from, path: saved?.path ?? null, node: by, by },
        ...(evaluates ? { purpose: 'evaluate' as const } : {}),
        ...moments,
        ...(passedOver.length === 0 ? {} : { passed_over: passedOver }),
      });
      const beginning = saved ? `from ${saved.path}` : 'with fresh adapters';
      log(`${run} has ${model} on the server, ${beginning}${evaluates ? ', to be sampled' : ''}`);
      const begun = new ServedInstance(instance, spec, service, holds, saved ? 2 : 1, again);
      if (evaluates) this.evaluating = { run, instance: begun };
      else this.driven = { run, instance: begun };
      return begun;
    } catch (error) {
      this.abandon(created);
      await service.unload(model, patience()).catch(() => undefined);
      throw error;
    }
  }

  /**
   * Ends the models before the next one: those that were trained, or those that this node has sampled. That a trained one is given up is
   * recorded first: a process that resumed it after its gradients were flushed would train on without those of an unfinished step.
   */
  private async endEarlier(run: string, options: WaitOptions, evaluates: boolean): Promise<void> {
    const { store, by } = this.options;
    const earlier = (await readModels(store, run))
      .map(({ record }) => record)
      .filter((one) => (evaluates ? !isTrained(one) && one.node === by : isTrained(one)));
    const newest = earlier.at(-1);
    if (newest) await recordGivenUp(store, newest, by);
    const models = earlier.map(({ model }) => model).filter((one) => !this.unloaded.has(one));
    for (const model of models.slice(-mostUnloaded)) await this.unload(model, options);
  }

  /** If a model that is only sampled finds no place, this process's trained one ends first: else processes could wait for each other. */
  private async createModel(spec: RunSpec, options: WaitOptions, evaluates: boolean): Promise<CreatedModel> {
    const { service } = this.options;
    const { name, rank, seed = spec.seed } = servedOf(spec);
    const trained = evaluates ? this.driven : null;
    try {
      return await service.createModel(name, { rank, seed }, { ...options, waits: trained === null });
    } catch (error) {
      if (trained === null || !isFull(error)) throw error;
    }
    await this.end(trained, options);
    return service.createModel(name, { rank, seed }, options);
  }

  /** Never throws: a model that is left ends with its session. */
  async endEvaluating(): Promise<void> {
    if (this.evaluating) await this.end(this.evaluating, patience()).catch(() => undefined);
  }

  private async end({ instance }: Driven, options: WaitOptions): Promise<void> {
    await this.giveUp(instance);
    await this.unload(instance.record.model, options);
  }

  /** A model in doubt is never trained further (R35). Where a server knows numbers, an interrupted step is not in doubt: it is sent again. */
  async guarded<T>(instance: ServedInstance, use: () => Promise<T>): Promise<T> {
    try {
      return await use();
    } catch (error) {
      if (instance.isNumbered && !isDoubtful(error) && isTrained(instance.record)) this.leave();
      else await this.giveUp(instance);
      throw error;
    }
  }

  /** The next use finds the trained model by its record, as another process would. Until then nothing keeps it alive. */
  leave(): void {
    const session = this.driven?.instance.record.session;
    if (session !== undefined) this.options.service.release(session);
    this.driven = null;
    this.options.engine.sampled = null;
  }

  /** The record lets the next process begin anew at once. Without it, it would find out by itself. */
  async giveUp(instance: ServedInstance): Promise<void> {
    const { record } = instance;
    this.abandon(record);
    if (this.evaluating?.instance === instance) this.evaluating = null;
    else if (this.driven?.instance === instance) this.driven = null;
    this.options.engine.sampled = null;
    await recordGivenUp(this.options.store, record, this.options.by).catch((error: unknown) =>
      this.options.log(`${record.model} is given up, and no record says so: ${(error as Error).message}`),
    );
  }

  private keepAlive({ session }: InstanceRecord): void {
    if (session !== undefined) this.options.service.keepAlive(session);
  }

  private abandon({ model, session }: Pick<InstanceRecord, 'model' | 'session'>): void {
    this.givenUp.add(model);
    if (session !== undefined) this.options.service.release(session);
  }

  /** Only the newest instance is trained (R33). */
  async refuseOlder(run: string, instance: InstanceRecord): Promise<void> {
    const newest = (await readTrained(this.options.store, run)).at(-1);
    if (newest && !newest.ended && newest.record.n === instance.n) return;
    this.abandon(instance);
    this.leave();
    throw new InstanceGivenUp(
      `another process has given ${instance.model} up, or trains ${run} with a newer model on the server`,
    );
  }

  private async unload(model: string, options: WaitOptions): Promise<void> {
    try {
      await this.options.service.unload(model, options);
      this.unloaded.add(model);
    } catch (error) {
      options.signal?.throwIfAborted();
      if (!(error instanceof TinkerRefused)) throw error;
      this.options.log(`${model} is not unloaded: ${error.message}`);
    }
  }

  async recordSaved(
    run: string,
    { step, state }: { step: number; state: Digest },
    saved: { path: string; number: number },
    instance: InstanceRecord,
  ): Promise<void> {
    const { store, by } = this.options;
    if (isTrained(instance)) await this.refuseOlder(run, instance);
    await recordSavedState(store, { run, step, state, ...saved, instance: instance.n, by });
  }
}

function patience(): WaitOptions {
  return { maxWaitMs: 0, signal: AbortSignal.timeout(endWithinMs) };
}

/** The same path may be recorded for two steps, so it is remembered with its step. */
function placeOf(path: string, step: number): string {
  return `${step} ${path}`;
}
