// A run's models on a Tinker server: the one that this process trains, the one that this node's last process left, or a new one; and one that is
// only sampled (R33, R35).
import { InDoubt, ModelLost, TinkerRefused } from '../../engine/tinker/call-errors.js';
import type { WaitOptions } from '../../engine/tinker/futures.js';
import type { TinkerEngine } from '../../engine/tinker/sampling.js';
import { itemOf, sentFor } from '../../engine/tinker/sent-tokens.js';
import {
  type CreatedModel,
  isFull,
  type ServedLora,
  type TinkerService,
} from '../../engine/tinker/service.js';
import { BadTinkerAnswer } from '../../engine/tinker/wire.js';
import type { Digest } from '../../spec/records/parts.js';
import type { RunRecord } from '../../spec/records/run-records.js';
import type { InstanceRecord } from '../../spec/records/served-model.js';
import type { RunSpec, ServedModel } from '../../spec/run-spec.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { readState, readUpdateIfAny, timelineOf } from '../../store/runs/run-records.js';
import {
  readInstances,
  readTrained,
  recordApplied,
  recordGivenUp,
  recordInstance,
  recordSavedState,
} from '../../store/runs/served-models.js';
import { readBatch } from '../../store/runs/stored-batch.js';
import { checkPass, InstanceGivenUp, ServedInstance, weightsTolerance } from './served-instance.js';
import type { ServedLog } from './served-log.js';
import { compared, differenceText, isSame } from './weight-check.js';

interface ServedInstancesOptions {
  store: ObjectStore;
  service: TinkerService;
  engine: TinkerEngine;
  /** Node: nobody else uses the models that it makes. */
  by: string;
  log: (message: string) => void;
}

/** A process that makes a model unloads those before it, so no more than the newest can still be there. */
const mostUnloaded = 3;

/** What this process drives. */
interface Driven {
  run: string;
  instance: ServedInstance;
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
   * A model whose state after `step` can be sampled. `trains`: the caller takes the run's steps, so its trained model may be made, unless a
   * later update may be in it.
   */
  async toSample(
    record: RunRecord,
    step: number,
    options: WaitOptions,
    trains: boolean,
  ): Promise<ServedInstance> {
    const { run } = record;
    const isHeld = this.driven?.run === run && this.driven.instance.holds?.step === step;
    if ((trains || isHeld) && !(await this.mayBePast(run, step))) return this.toTrain(record, step, options);
    const own = this.evaluating?.run === run ? this.evaluating.instance : null;
    if (own?.holds && own.holds.step <= step) {
      this.keepAlive(own.record);
      return this.goOn(record, own, step, options);
    }
    return this.create(record, step, options, { evaluates: true });
  }

  /** Once a batch is sealed, its update may have begun. */
  private async mayBePast(run: string, step: number): Promise<boolean> {
    const { store } = this.options;
    const after = step + 1;
    if (await readUpdateIfAny(store, run, after)) return true;
    return (await readBatch(store, await timelineOf(store, run, after), after)) !== null;
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
        instance = await this.beginPhase(record, next - 1, options, instance.record.purpose !== undefined);
      this.options.log(`${run}: the logged batch of step ${next} is applied again`);
      await this.guarded(instance, async () => {
        const { saved, served } = await sentFor({ run, item: itemOf.update(next) }, () =>
          instance.apply(logged, options),
        );
        if (saved) await this.recordSaved(run, { step: next, state }, saved, instance.record);
        if (isEvaluating(instance)) return;
        const { instance: n, requests } = served;
        await recordApplied(store, { run, instance: n, step: next, step_id: logged.stepId, requests, by });
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
    const instance = (await readTrained(store, run)).at(-1);
    if (!instance || instance.given_up || instance.node !== by) return null;
    if (instance.step > step || this.givenUp.has(instance.model)) return null;
    const loads = instance.path === null ? 0 : 1;
    const began = { step: instance.step, requests: loads, again: undefined };
    const taken = (await this.log.taken(instance, step)) ?? began;
    if (await this.log.hasNonFinite(run, taken.step + 1, step)) return null;
    if (!servedOf(spec).numbered) {
      // A batch that was sent would be sent twice.
      const wasSent =
        (await this.log.hasApplied(run, taken.step + 1, step)) || (await this.mayBePast(run, step));
      if (wasSent) return null;
    }
    const holds = { step: taken.step, state: await readState(store, run, taken.step) };
    this.keepAlive(instance);
    this.options.log(`${run} goes on with ${instance.model} on the server, at step ${taken.step}`);
    return new ServedInstance(instance, spec, service, holds, taken.requests + 1, taken.again);
  }

  /** A new model that holds the state after `step`, with the moments of its optimizer. */
  begin(record: RunRecord, step: number, options: WaitOptions): Promise<ServedInstance> {
    return this.create(record, step, options);
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
  private async create(
    record: RunRecord,
    step: number,
    options: WaitOptions,
    { zeroMoments = false, evaluates = false }: Creation = {},
  ): Promise<ServedInstance> {
    const { store, service, by } = this.options;
    const { run, spec } = record;
    const { name, rank, seed } = servedOf(spec);
    const before = evaluates ? this.evaluating : this.driven;
    if (before) await this.giveUp(before.instance);
    await this.endEarlier(run, options, evaluates);
    const passedOver: string[] = [];
    for (let from = step, isUpdated = false; ; from--) {
      const paths =
        from === 0 ? [null] : (await this.log.savedAt(run, from)).map(({ path }) => path).reverse();
      for (const path of paths) {
        if (path !== null && this.lost.has(placeOf(path, from))) {
          passedOver.push(path);
          continue;
        }
        const lora = { rank, seed: seed ?? spec.seed };
        const created = await this.createModel(name, lora, options, evaluates);
        const moments = zeroMoments && !isUpdated && path !== null ? { moments: 'zero' as const } : {};
        const problem =
          path === null
            ? null
            : await this.load(record, created, { path, from, optimizer: !('moments' in moments) }, options);
        if (path !== null && problem !== null) {
          this.options.log(
            `${run}: ${path}, the saved state of step ${from}, ${problem}: an older one is used`,
          );
          passedOver.push(path);
          this.lost.add(placeOf(path, from));
          continue;
        }
        // A model is recorded once it holds what its record says: a successor would not load it again.
        const instance = await recordInstance(store, {
          ...{ run, ...created, step: from, path, node: by, by },
          ...(evaluates ? { purpose: 'evaluate' as const } : {}),
          ...moments,
          ...(passedOver.length === 0 ? {} : { passed_over: passedOver }),
        });
        this.options.log(
          `${run} has ${created.model} on the server, ${path === null ? 'with fresh adapters' : `from ${path}`}` +
            (evaluates ? ', to be sampled' : ''),
        );
        const holds = { step: from, state: await readState(store, run, from) };
        const begun = new ServedInstance(instance, spec, service, holds, path === null ? 1 : 2);
        if (evaluates) this.evaluating = { run, instance: begun };
        else this.driven = { run, instance: begun };
        return this.goOn(record, begun, step, options);
      }
      isUpdated ||= zeroMoments && (await this.log.isApplied(run, from));
    }
  }

  /**
   * Ends the models before the next one: those that were trained, or those that this node has sampled. That a trained one is given up is
   * recorded first: a process that resumed it after its flush would train on without the gradients of an unfinished step.
   */
  private async endEarlier(run: string, options: WaitOptions, evaluates: boolean): Promise<void> {
    const earlier = evaluates
      ? (await readInstances(this.options.store, run)).filter(
          ({ purpose, node }) => purpose === 'evaluate' && node === this.options.by,
        )
      : await readTrained(this.options.store, run);
    const newest = earlier.at(-1);
    if (newest) await recordGivenUp(this.options.store, newest, this.options.by);
    const models = new Set(earlier.map(({ model }) => model));
    for (const model of [...models].slice(-mostUnloaded)) await this.unload(model, options);
  }

  /** If a model that is only sampled finds no place, this process's trained one ends first: else processes could wait for each other. */
  private async createModel(
    name: string,
    lora: ServedLora,
    options: WaitOptions,
    evaluates: boolean,
  ): Promise<CreatedModel> {
    const { service } = this.options;
    if (!evaluates || !this.driven) return service.createModel(name, lora, options);
    try {
      return await service.createModel(name, lora, { ...options, waits: false });
    } catch (error) {
      if (!isFull(error)) throw error;
    }
    await this.end(this.driven, options);
    return service.createModel(name, lora, options);
  }

  /** Never throws: a model that is left ends with its session. */
  async endEvaluating(options: WaitOptions): Promise<void> {
    if (this.evaluating) await this.end(this.evaluating, options).catch(() => undefined);
  }

  private async end({ instance }: Driven, options: WaitOptions): Promise<void> {
    await this.giveUp(instance);
    await this.unload(instance.record.model, options);
  }

  /** Loads a saved state as the model's first request. Returns why the model cannot be used: it has no state, or another one. */
  private async load(
    { run, spec }: RunRecord,
    { model, session }: CreatedModel,
    { path, from, optimizer }: { path: string; from: number; optimizer: boolean },
    options: WaitOptions,
  ): Promise<string | null> {
    const { service } = this.options;
    try {
      await service.loadWeights({ model_id: model, seq_id: 1 }, path, { ...options, optimizer });
      const problem = await this.problemOfWeights(run, from, spec, model, options);
      if (problem === null) return null;
      this.abandon(model, session);
      await this.unload(model, options);
      return problem;
    } catch (error) {
      this.abandon(model, session);
      options.signal?.throwIfAborted();
      const isRefused =
        error instanceof TinkerRefused ||
        (error instanceof ModelLost && !(await this.isListed(path, options)));
      if (!isRefused) throw error;
      await this.unload(model, options);
      return 'does not load';
    }
  }

  /** A server may say that it has loaded a state that it has lost, and leave fresh adapters: a load is believed when it answers (R37). */
  private async problemOfWeights(
    run: string,
    step: number,
    spec: RunSpec,
    model_id: string,
    options: WaitOptions,
  ): Promise<string | null> {
    const check = await this.log.checkOf(run, step);
    if (check === null) return null;
    const found = await checkPass(this.options.service, { model_id }, check.data, options);
    const weights = compared(check, found, weightsTolerance(servedOf(spec)));
    return isSame(weights) ? null : `loads as something else: ${differenceText(check, weights)}`;
  }

  private async isListed(path: string, options: WaitOptions): Promise<boolean> {
    const [model = ''] = path.replace(/^tinker:\/\//, '').split('/');
    const listed = await this.options.service.checkpoints(model, options);
    return listed.some(({ tinker_path }) => tinker_path === path);
  }

  /** A model in doubt is never trained further (R35). Where a server knows numbers, an interrupted step is not in doubt: it is sent again. */
  async guarded<T>(instance: ServedInstance, use: () => Promise<T>): Promise<T> {
    try {
      return await use();
    } catch (error) {
      if (instance.isNumbered && !isDoubtful(error) && !isEvaluating(instance)) this.leave();
      else await this.giveUp(instance);
      throw error;
    }
  }

  /** The next model begins with a saved state: the one that is trained, or the one that was `sampled`. */
  async forget(sampled?: ServedInstance): Promise<void> {
    const instance = sampled ?? this.driven?.instance;
    if (instance) await this.giveUp(instance);
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
    this.abandon(record.model, record.session);
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

  private abandon(model: string, session: string | undefined): void {
    this.givenUp.add(model);
    if (session !== undefined) this.options.service.release(session);
  }

  /** Only the newest instance is trained (R33). */
  async refuseOlder(run: string, instance: InstanceRecord): Promise<void> {
    const newest = (await readTrained(this.options.store, run)).at(-1);
    if (newest?.n === instance.n) return;
    this.abandon(instance.model, instance.session);
    this.leave();
    throw new InstanceGivenUp(
      `another process has given ${instance.model} up, or trains ${run} with a newer model on the server`,
    );
  }

  private async unload(model: string, options: WaitOptions): Promise<void> {
    await this.options.service.unload(model, options).catch((error: unknown) => {
      options.signal?.throwIfAborted();
      if (!(error instanceof TinkerRefused)) throw error;
      this.options.log(`${model} is not unloaded: ${error.message}`);
    });
  }

  async recordSaved(
    run: string,
    { step, state }: { step: number; state: Digest },
    saved: { path: string; number: number },
    instance: InstanceRecord,
  ): Promise<void> {
    const { store, by } = this.options;
    if (instance.purpose === undefined) await this.refuseOlder(run, instance);
    await recordSavedState(store, { run, step, state, ...saved, instance: instance.n, by });
  }
}

export function servedOf({ model }: RunSpec): ServedModel {
  if (model.served) return model.served;
  throw new Error('a run without model.served has come to a node of a Tinker server');
}

/** A path may be recorded at a step that it does not hold, and at its own. */
function placeOf(path: string, step: number): string {
  return `${step} ${path}`;
}

function isEvaluating({ record }: ServedInstance): boolean {
  return record.purpose === 'evaluate';
}

/** The model may hold something else than the records say, or may be gone. */
function isDoubtful(error: unknown): boolean {
  return [ModelLost, InDoubt, TinkerRefused, InstanceGivenUp, BadTinkerAnswer].some(
    (kind) => error instanceof kind,
  );
}
