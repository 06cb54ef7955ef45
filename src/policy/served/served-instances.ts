// A run's model on a Tinker server: the one that this process drives, the one that another process left, or a new one (R33, R35).
import { InDoubt, ModelLost, TinkerRefused } from '../../engine/tinker/call-errors.js';
import type { WaitOptions } from '../../engine/tinker/futures.js';
import type { TinkerEngine } from '../../engine/tinker/sampling.js';
import { itemOf, sentFor } from '../../engine/tinker/sent-tokens.js';
import type { CreatedModel, TinkerService } from '../../engine/tinker/service.js';
import { BadTinkerAnswer } from '../../engine/tinker/wire.js';
import type { Digest } from '../../spec/records/parts.js';
import type { RunRecord } from '../../spec/records/run-records.js';
import type { InstanceRecord } from '../../spec/records/served-model.js';
import type { RunSpec, ServedModel } from '../../spec/run-spec.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { readState, timelineOf } from '../../store/runs/run-records.js';
import { readInstances, recordInstance, recordSavedState } from '../../store/runs/served-models.js';
import { readBatch } from '../../store/runs/stored-batch.js';
import { InstanceGivenUp, ServedInstance } from './served-instance.js';
import type { ServedLog } from './served-log.js';

interface ServedInstancesOptions {
  store: ObjectStore;
  service: TinkerService;
  engine: TinkerEngine;
  /** Node, for records. */
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

export class ServedInstances {
  driven: Driven | null = null;
  /** Models that are not trained any more, by the server's ids. */
  private readonly givenUp = new Set<string>();

  constructor(
    private readonly options: ServedInstancesOptions,
    private readonly log: ServedLog,
  ) {}

  /** The run's model, holding the state after `step`: this process's own, the newest recorded one, or a new one. */
  async at(
    record: RunRecord,
    step: number,
    options: WaitOptions,
    purpose: 'to sample' | 'to train',
  ): Promise<ServedInstance> {
    const { run } = record;
    const own = this.driven?.run === run ? this.driven.instance : null;
    if (
      own?.holds &&
      own.holds.step <= step &&
      !(await this.log.hasNonFinite(run, own.holds.step + 1, step))
    ) {
      await this.refuseOlder(run, own.record);
      this.keepAlive(own.record);
      return this.goOn(record, own, step, options);
    }
    if (this.driven && this.driven.run !== run) this.leave();
    const newest = (await readInstances(this.options.store, run)).at(-1);
    const resumed = newest && !own ? await this.resumed(record, newest, step, purpose) : null;
    if (resumed) {
      this.driven = { run, instance: resumed };
      return resumed;
    }
    return this.begin(record, step, options);
  }

  /** Applies the logged batches up to `step`. */
  private async goOn(
    record: RunRecord,
    begun: ServedInstance,
    step: number,
    options: WaitOptions,
  ): Promise<ServedInstance> {
    const { engine } = this.options;
    const { run } = record;
    let instance = begun;
    for (let next = (instance.holds?.step ?? step) + 1; next <= step; next++) {
      engine.sampled = null;
      const logged = await this.log.step(run, next);
      const state = await readState(this.options.store, run, next);
      if (logged === null) {
        instance.skip(0, { step: next, state });
        continue;
      }
      if (logged.plan.optimizer.reset_moments && !instance.hasZeroMoments)
        instance = await this.beginPhase(record, next - 1, options);
      this.options.log(`${run}: the logged batch of step ${next} is applied again`);
      await this.guarded(instance, async () => {
        const { saved } = await sentFor({ run, item: itemOf.update(next) }, () =>
          instance.apply(logged, options),
        );
        if (saved) await this.recordSaved(run, { step: next, state }, saved, instance.record);
      });
    }
    return instance;
  }

  /**
   * The newest model as the process before this one left it, if it can hold the state after `step`; null if a later step may be in it. All
   * requests up to there were answered, or their update would not be recorded.
   */
  private async resumed(
    record: RunRecord,
    instance: InstanceRecord,
    step: number,
    purpose: 'to sample' | 'to train',
  ): Promise<ServedInstance | null> {
    const { store, service } = this.options;
    const { run, spec } = record;
    if (instance.given_up || instance.step > step || this.givenUp.has(instance.model)) return null;
    const counted = await this.log.counted(instance, step);
    if (await this.log.hasNonFinite(run, counted.step + 1, step)) return null;
    // Once a batch is sealed, its update may have begun: a reader would sample what came of it, and without numbers it would be sent twice.
    const after = step + 1;
    const mustBeUntouched = purpose === 'to sample' || !servedOf(spec).numbered;
    if (mustBeUntouched && (await readBatch(store, await timelineOf(store, run, after), after))) return null;
    const first = { step: instance.step, state: await readState(store, run, instance.step) };
    const loads = instance.path === null ? 0 : 1;
    const resumed = new ServedInstance(instance, spec, service, first, 1 + loads);
    resumed.skip(counted.requests - loads, {
      step: counted.step,
      state: await readState(store, run, counted.step),
    });
    for (let next = counted.step + 1; next <= step; next++) {
      const logged = await this.log.step(run, next);
      const requests = logged ? ServedInstance.requestsOf(spec, logged) : 0;
      resumed.skip(requests, { step: next, state: await readState(store, run, next) });
    }
    this.keepAlive(instance);
    this.options.log(`${run} goes on with ${instance.model} on the server, at step ${step}`);
    return resumed;
  }

  /** A new model that holds the state after `step`, with the moments of its optimizer. */
  private begin(record: RunRecord, step: number, options: WaitOptions): Promise<ServedInstance> {
    return this.create(record, step, options, false);
  }

  /** The same without moments, as the first update of a training phase needs it. */
  async beginPhase(record: RunRecord, step: number, options: WaitOptions): Promise<ServedInstance> {
    const first = await this.create(record, step, options, true);
    if (first.hasZeroMoments) return first;
    // An older state was loaded, and the updates after it have made moments. They also saved the state again.
    const second = await this.create(record, step, options, true);
    if (second.hasZeroMoments) return second;
    this.giveUp(second);
    throw new InstanceGivenUp(
      `the state of step ${step}, with which a training phase begins, cannot be loaded`,
    );
  }

  /** From the newest saved state at or before `step` that loads. `zeroMoments`: if no update lies between the two. */
  private async create(
    record: RunRecord,
    step: number,
    options: WaitOptions,
    zeroMoments: boolean,
  ): Promise<ServedInstance> {
    const { store, service, by } = this.options;
    const { run, spec } = record;
    const { name, rank, seed } = servedOf(spec);
    if (this.driven) this.giveUp(this.driven.instance);
    await this.endEarlier(run, options);
    const passedOver: string[] = [];
    for (let from = step, isUpdated = false; ; from--) {
      const paths =
        from === 0 ? [null] : (await this.log.savedAt(run, from)).map(({ path }) => path).reverse();
      for (const path of paths) {
        const created = await service.createModel(name, { rank, seed: seed ?? spec.seed }, options);
        const moments = zeroMoments && !isUpdated && path !== null ? { moments: 'zero' as const } : {};
        if (path !== null && !(await this.loads(created, path, !('moments' in moments), options))) {
          this.options.log(
            `${run}: ${path}, the saved state of step ${from}, does not load: an older one is used`,
          );
          passedOver.push(path);
          continue;
        }
        // A model is recorded once it holds what its record says: a successor would not load it again.
        const instance = await recordInstance(store, {
          ...{ run, ...created, step: from, path, by },
          ...moments,
          ...(passedOver.length === 0 ? {} : { passed_over: passedOver }),
        });
        this.options.log(
          `${run} has ${created.model} on the server, ${path === null ? 'with fresh adapters' : `from ${path}`}`,
        );
        const holds = { step: from, state: await readState(store, run, from) };
        const begun = new ServedInstance(instance, spec, service, holds, path === null ? 1 : 2);
        this.driven = { run, instance: begun };
        return this.goOn(record, begun, step, options);
      }
      isUpdated ||= zeroMoments && (await this.log.isApplied(run, from));
    }
  }

  /**
   * Ends the models before the next one. That they are given up is recorded first: a process that resumed one of them after its flush would
   * train on without the gradients of an unfinished step.
   */
  private async endEarlier(run: string, options: WaitOptions): Promise<void> {
    const { store, by } = this.options;
    const earlier = await readInstances(store, run);
    const newest = earlier.at(-1);
    if (newest && newest.given_up === undefined) {
      const { run, model, step, path } = newest;
      await recordInstance(store, { run, model, step, path, given_up: true, by });
    }
    const models = new Set(earlier.map(({ model }) => model));
    for (const model of [...models].slice(-mostUnloaded)) await this.unload(model, options);
  }

  /** False if the saved state is gone, or was cut off by a kill. */
  private async loads(
    { model, session }: CreatedModel,
    path: string,
    optimizer: boolean,
    options: WaitOptions,
  ): Promise<boolean> {
    const { service } = this.options;
    try {
      await service.loadWeights({ model_id: model, seq_id: 1 }, path, { ...options, optimizer });
      return true;
    } catch (error) {
      this.abandon(model, session);
      options.signal?.throwIfAborted();
      const isRefused =
        error instanceof TinkerRefused ||
        (error instanceof ModelLost && !(await this.isListed(path, options)));
      if (!isRefused) throw error;
      await this.unload(model, options);
      return false;
    }
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
      if (instance.isNumbered && !isDoubtful(error)) this.leave();
      else this.giveUp(instance);
      throw error;
    }
  }

  /** The run's next model begins with a saved state. */
  forget(): void {
    if (this.driven) this.giveUp(this.driven.instance);
  }

  /** The next use finds the model by its record, as another process would. Until then nothing keeps it alive. */
  leave(): void {
    const session = this.driven?.instance.record.session;
    if (session !== undefined) this.options.service.release(session);
    this.driven = null;
    this.options.engine.sampled = null;
  }

  giveUp({ record }: ServedInstance): void {
    this.abandon(record.model, record.session);
    this.leave();
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
    const newest = (await readInstances(this.options.store, run)).at(-1);
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
    await this.refuseOlder(run, instance);
    await recordSavedState(store, { run, step, state, ...saved, instance: instance.n, by });
  }
}

export function servedOf({ model }: RunSpec): ServedModel {
  if (model.served) return model.served;
  throw new Error('a run without model.served has come to a node of a Tinker server');
}

/** The model may hold something else than the records say, or may be gone. */
function isDoubtful(error: unknown): boolean {
  return [ModelLost, InDoubt, TinkerRefused, InstanceGivenUp, BadTinkerAnswer].some(
    (kind) => error instanceof kind,
  );
}
