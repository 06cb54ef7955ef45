// The keeper of states on a Tinker server: named, saved there, and made again from the newest saved one and the logged batches after it.
import { randomUUID } from 'node:crypto';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { InDoubt, ModelLost, TinkerRefused } from '../engine/tinker/call-errors.js';
import type { WaitOptions } from '../engine/tinker/futures.js';
import type { ServedPolicy, TinkerEngine } from '../engine/tinker/sampling.js';
import { itemOf, sentFor } from '../engine/tinker/sent-tokens.js';
import type { TinkerService } from '../engine/tinker/service.js';
import { BadTinkerAnswer } from '../engine/tinker/wire.js';
import { policyServer, type UpdateResult } from '../engine/policy-engine.js';
import type { Digest } from '../spec/records/parts.js';
import type { RunRecord } from '../spec/records/run-records.js';
import type { InstanceRecord } from '../spec/records/served-model.js';
import type { RunSpec, ServedModel } from '../spec/run-spec.js';
import { decodeBatchFile } from '../store/files/batch-file.js';
import { batchKey } from '../store/objects/layout.js';
import type { ObjectStore } from '../store/objects/object-store.js';
import { UnreadableRecord } from '../store/objects/store-errors.js';
import { checkpointDataKey, writeCheckpoint } from '../store/runs/checkpoints.js';
import {
  readInstances,
  readSavedStates,
  recordInstance,
  recordSavedState,
} from '../store/runs/served-models.js';
import { readPlan, readRun, readState, readUpdate, timelineOf } from '../store/runs/run-records.js';
import { readBatch } from '../store/runs/stored-batch.js';
import { sha256Hex } from '../base/sha256.js';
import type { Attended } from './attended.js';
import { InstanceGivenUp, isSaved, ServedInstance, type StepToApply } from './served-instance.js';
import { isSamplerOf, nameOfBase, nameOfSave, nameOfState } from './served-names.js';
import type {
  BaseState,
  CheckpointUpload,
  CommittedState,
  Provenance,
  StateKeeper,
  StepUpdate,
} from './state-keeper.js';

interface ServedStatesOptions {
  store: ObjectStore;
  service: TinkerService;
  engine: TinkerEngine;
  policy: ServedPolicy;
  /** Node, for records. */
  by: string;
  /** Node disk: archives on their way. */
  folder: string;
  log: (message: string) => void;
}

/** What this process drives. */
interface Driven {
  run: string;
  instance: ServedInstance;
}

export class ServedStates implements StateKeeper {
  private driven: Driven | null = null;
  /** Models that are not trained any more, by the server's ids. */
  private readonly givenUp = new Set<string>();
  /** Step ids whose update the server's list of saved states proves. */
  private proven: { stepId: Digest; state: Digest } | null = null;

  constructor(private readonly options: ServedStatesOptions) {
    // A state that the server has lost is held no more: the next use makes it again (R35).
    options.engine.onLost = () => void this.forget();
  }

  held(): Promise<Digest | null> {
    return Promise.resolve(this.options.engine.sampled?.state ?? null);
  }

  weights(): Promise<null> {
    return Promise.resolve(null);
  }

  /** State 0 is a name: fresh adapters are made when they are first needed. */
  async holdBase({ spec }: RunRecord): Promise<BaseState> {
    const { service, model } = this.options.policy;
    const { name, rank, seed } = servedOf(spec);
    if (name !== model) throw new Error(`this node serves ${model}, and the run trains ${name}`);
    await this.options.engine.info();
    return { state: nameOfBase({ service, model, rank, seed: seed ?? spec.seed }) };
  }

  async hold({ run, step, state }: CommittedState, attempt: Attended): Promise<void> {
    const record = await readRun(this.options.store, run);
    const options = waiting(record, attempt, { restoring: step });
    const instance = await this.instanceAt(record, step, options, 'to sample');
    if (instance.holds?.state !== state)
      throw new UnreadableRecord(
        `runs/${run}`,
        `the state of step ${step} is ${state}, and its batches name ${instance.holds?.state ?? 'none'}`,
      );
    await this.guarded(instance, async () => {
      const path = await sentFor({ run, item: itemOf.other }, () => instance.sampler(options));
      this.options.engine.sampled = { state, path, maxWaitMs: maxWaitMs(record) };
    });
  }

  /** The server's list comes first: a saved state of this very step proves its update (R36). */
  async holdForUpdate(
    { run, step }: CommittedState,
    stepId: Digest,
    _provenance: Provenance,
    attempt: Attended,
  ): Promise<void> {
    this.proven = null;
    const record = await readRun(this.options.store, run);
    const options = waiting(record, attempt, { restoring: step });
    if (await this.isSavedAlready(record, step + 1, stepId, options)) return;
    await this.instanceAt(record, step, options, 'to train');
  }

  forget(): Promise<void> {
    if (this.driven) this.giveUp(this.driven.instance);
    return Promise.resolve();
  }

  async apply({ run, step, plan, stepId, onProgress, ...attempt }: StepUpdate): Promise<UpdateResult> {
    const state = nameOfState(plan.previous_state, stepId);
    if (this.proven?.stepId === stepId) return { state, applied: true, metrics: {} };
    const instance = this.driven?.instance;
    if (!instance || instance.holds?.state !== plan.previous_state)
      throw new InstanceGivenUp(`no model on the server holds the state before step ${step}`);
    await this.refuseOlder(run, instance);
    this.options.engine.sampled = null;
    onProgress?.({ done: 0, total: 1 });
    const batch = await this.batchOf(run, step);
    const options = waiting(await readRun(this.options.store, run), attempt, { verb: 'update' });
    return this.guarded(instance, async () => {
      const { saved, ...result } = await sentFor({ run, item: itemOf.update(step) }, () =>
        instance.apply({ step, plan, batch, stepId }, options),
      );
      if (saved) await this.recordSaved(run, { step, state }, saved, instance.record);
      return result;
    });
  }

  /** A kept state is saved with its optimizer, or follows from logged batches, and its adapters can be had. */
  async kept(committed: CommittedState): Promise<string | null> {
    if ((await this.archiveOf(committed)) === null) return null;
    return this.savedBefore(committed);
  }

  /** The held state can be sampled, so its adapters can be had. */
  keep(committed: CommittedState): Promise<string> {
    return this.savedBefore(committed);
  }

  prune(): Promise<void> {
    return Promise.resolve();
  }

  async problemOf(committed: CommittedState, signal: AbortSignal): Promise<string | null> {
    const archive = await this.archiveOf(committed, signal);
    return archive === null ? 'the server has no adapters of it to hand out' : null;
  }

  /** The adapters alone: what was paid for does not end with the server. Another process's file is adopted: bytes may differ. */
  async upload(
    store: ObjectStore,
    record: RunRecord,
    committed: CommittedState,
    upload: CheckpointUpload,
  ): Promise<void> {
    const { service, folder } = this.options;
    const { run, ...state } = committed;
    const archive = await this.archiveOf(committed, upload.signal);
    if (archive === null) throw new Error(`the server has no adapters of step ${state.step} to hand out`);
    await mkdir(folder, { recursive: true });
    const statePath = join(folder, `${run}.${state.step}.${randomUUID()}.tar.gz`);
    try {
      const stored = await store.getToFile(await checkpointDataKey(store, record, state.step), statePath);
      if (!stored)
        await writeFile(
          statePath,
          await service.archive(archive.model, archive.name, signalOf(upload.signal)),
        );
      await writeCheckpoint(store, record, { ...upload, ...state, statePath });
    } finally {
      await rm(statePath, { force: true });
    }
  }

  /** Of the newest model that has it. */
  private async archiveOf(
    { run, state }: CommittedState,
    signal?: AbortSignal,
  ): Promise<{ model: string; name: string } | null> {
    const { store, service } = this.options;
    for (const { model } of (await readInstances(store, run)).reverse()) {
      const found = (await service.checkpoints(model, signalOf(signal))).find(
        (one) => one.checkpoint_type === 'sampler' && isSamplerOf(one.checkpoint_id, state),
      );
      if (found) return { model, name: found.checkpoint_id };
    }
    return null;
  }

  private async savedBefore({ run, step }: CommittedState): Promise<string> {
    for (let before = step; before > 0; before--) {
      const path = (await this.savedAt(run, before)).at(-1)?.path;
      if (path !== undefined) return path;
    }
    return this.options.policy.model;
  }

  /** The run's model, holding the state after `step`: this process's own, the newest recorded one, or a new one. */
  private async instanceAt(
    record: RunRecord,
    step: number,
    options: WaitOptions,
    purpose: 'to sample' | 'to train',
  ): Promise<ServedInstance> {
    const { run } = record;
    const own = this.driven?.run === run ? this.driven.instance : null;
    if (own?.holds && own.holds.step <= step) {
      await this.refuseOlder(run, own);
      return this.goOn(record, own, step, options);
    }
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
    { run }: RunRecord,
    instance: ServedInstance,
    step: number,
    options: WaitOptions,
  ): Promise<ServedInstance> {
    const { log, engine } = this.options;
    for (let next = (instance.holds?.step ?? step) + 1; next <= step; next++) {
      engine.sampled = null;
      const logged = await this.loggedStep(run, next);
      const state = await readState(this.options.store, run, next);
      if (logged === null) {
        instance.skip(0, { step: next, state });
        continue;
      }
      log(`${run}: the logged batch of step ${next} is applied again`);
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
    if (instance.step > step || this.givenUp.has(instance.model)) return null;
    // Once a batch is sealed, its update may have begun: a reader would sample what came of it, and without numbers it would be sent twice.
    const after = step + 1;
    const mustBeUntouched = purpose === 'to sample' || !servedOf(spec).numbered;
    if (mustBeUntouched && (await readBatch(store, await timelineOf(store, run, after), after))) return null;
    const first = { step: instance.step, state: await readState(store, run, instance.step) };
    const resumed = new ServedInstance(instance, spec, service, first, instance.path === null ? 1 : 2);
    for (let next = instance.step + 1; next <= step; next++) {
      const logged = await this.loggedStep(run, next);
      const requests = logged ? ServedInstance.requestsOf(spec, logged) : 0;
      resumed.skip(requests, { step: next, state: await readState(store, run, next) });
    }
    if (instance.session !== undefined) service.keepAlive(instance.session);
    this.options.log(`${run} goes on with ${instance.model} on the server, at step ${step}`);
    return resumed;
  }

  /** A new model, from the newest saved state at or before `step` that loads. */
  private async begin(record: RunRecord, step: number, options: WaitOptions): Promise<ServedInstance> {
    const { store, service, by, log } = this.options;
    const { run, spec } = record;
    const { name, rank, seed } = servedOf(spec);
    if (this.driven) this.giveUp(this.driven.instance);
    for (const { model } of await readInstances(store, run)) await this.unload(model, options);
    const passedOver: string[] = [];
    for (let from = step; ; from--) {
      const paths = from === 0 ? [null] : (await this.savedAt(run, from)).map(({ path }) => path).reverse();
      for (const path of paths) {
        const created = await service.createModel(name, { rank, seed: seed ?? spec.seed }, options);
        const instance = await recordInstance(store, {
          ...{ run, ...created, step: from, path, by },
          ...(passedOver.length === 0 ? {} : { passed_over: passedOver }),
        });
        if (path !== null && !(await this.loads(instance, path, options))) {
          log(`${run}: ${path}, the saved state of step ${from}, does not load: an older one is used`);
          passedOver.push(path);
          continue;
        }
        log(
          `${run} has ${created.model} on the server, ${path === null ? 'with fresh adapters' : `from ${path}`}`,
        );
        const holds = { step: from, state: await readState(store, run, from) };
        const begun = new ServedInstance(instance, spec, service, holds, path === null ? 1 : 2);
        this.driven = { run, instance: begun };
        return this.goOn(record, begun, step, options);
      }
    }
  }

  /** False if the saved state is gone, or was cut off by a kill. */
  private async loads(instance: InstanceRecord, path: string, options: WaitOptions): Promise<boolean> {
    const { service } = this.options;
    const { model, session } = instance;
    try {
      await service.loadWeights({ model_id: model, seq_id: 1 }, path, options);
      return true;
    } catch (error) {
      options.signal?.throwIfAborted();
      const isRefused =
        error instanceof TinkerRefused ||
        (error instanceof ModelLost && !(await this.isListed(path, options)));
      this.abandon(model, session);
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
  private async guarded<T>(instance: ServedInstance, use: () => Promise<T>): Promise<T> {
    try {
      return await use();
    } catch (error) {
      if (instance.isNumbered && !isDoubtful(error)) this.leave();
      else this.giveUp(instance);
      throw error;
    }
  }

  /** The next use finds the model by its record, as another process would. */
  private leave(): void {
    this.driven = null;
    this.options.engine.sampled = null;
  }

  private giveUp({ record }: ServedInstance): void {
    this.abandon(record.model, record.session);
    this.leave();
  }

  private abandon(model: string, session: string | undefined): void {
    this.givenUp.add(model);
    if (session !== undefined) this.options.service.release(session);
  }

  /** Only the newest instance is trained (R33). */
  private async refuseOlder(run: string, instance: ServedInstance): Promise<void> {
    const newest = (await readInstances(this.options.store, run)).at(-1);
    if (newest?.n === instance.record.n) return;
    this.giveUp(instance);
    throw new InstanceGivenUp(
      `another process trains ${run} on the server, as ${newest?.model ?? 'an unknown model'}`,
    );
  }

  private async unload(model: string, options: WaitOptions): Promise<void> {
    await this.options.service.unload(model, options).catch((error: unknown) => {
      options.signal?.throwIfAborted();
      if (!(error instanceof TinkerRefused)) throw error;
      this.options.log(`${model} is not unloaded: ${error.message}`);
    });
  }

  private async isSavedAlready(
    { run, spec }: RunRecord,
    step: number,
    stepId: Digest,
    options: WaitOptions,
  ): Promise<boolean> {
    const { store, service, log } = this.options;
    if (!isSaved(spec, step)) return false;
    const state = nameOfState(await readState(store, run, step - 1), stepId);
    const saved = (await this.savedAt(run, step)).some((one) => one.state === state);
    const instances = await readInstances(store, run);
    const newest = instances.at(-1);
    const listed =
      saved || !newest
        ? undefined
        : (await service.checkpoints(newest.model, options)).find(
            (one) => one.checkpoint_id === nameOfSave(step, stepId) && one.checkpoint_type === 'training',
          );
    if (!saved && !listed) return false;
    log(`${run}: the server has the state of step ${step} already`);
    if (listed && newest) {
      const number = await this.numberOfSave(run, spec, newest, step);
      await this.recordSaved(run, { step, state }, { path: listed.tinker_path, number }, newest);
    }
    this.proven = { stepId, state };
    // Whether this process has sent all of the step's requests is not known: the next use looks at the records.
    this.leave();
    return true;
  }

  private async numberOfSave(
    run: string,
    spec: RunSpec,
    instance: InstanceRecord,
    step: number,
  ): Promise<number> {
    let number = instance.path === null ? 0 : 1;
    for (let next = instance.step + 1; next <= step; next++) {
      const logged = await this.loggedStep(run, next, next === step);
      number += logged ? ServedInstance.requestsOf(spec, logged) : 0;
    }
    return number;
  }

  private async recordSaved(
    run: string,
    { step, state }: { step: number; state: Digest },
    saved: { path: string; number: number },
    instance: InstanceRecord,
  ): Promise<void> {
    const { store, by } = this.options;
    await recordSavedState(store, { run, step, state, ...saved, instance: instance.n, by });
  }

  private async savedAt(run: string, step: number) {
    const { store } = this.options;
    return readSavedStates(store, await timelineOf(store, run, step), step);
  }

  /** Null if the step applied nothing. `sealed`: the step is not committed, but its plan and batch are there. */
  private async loggedStep(run: string, step: number, sealed = false): Promise<StepToApply | null> {
    const { store } = this.options;
    if (sealed) {
      const { record: plan } = await readPlan(store, run, step);
      return { step, plan, batch: await this.batchOf(run, step), stepId: '' };
    }
    const { identity } = await readUpdate(store, run, step);
    if (identity.applied !== true) return null;
    const { record: plan } = await readPlan(store, run, step, identity.plan);
    return { step, plan, batch: await this.batchOf(run, step, identity.batch), stepId: identity.step_id };
  }

  /** Throws `UnreadableRecord` if the batch is gone or changed. */
  private async batchOf(run: string, step: number, recorded?: Digest) {
    const { store } = this.options;
    const timeline = await timelineOf(store, run, step);
    const key = batchKey(timeline, step);
    const bytes = await readBatch(store, timeline, step);
    if (bytes === null) throw new UnreadableRecord(key, 'it is not in the store');
    if (recorded !== undefined && sha256Hex(bytes) !== recorded)
      throw new UnreadableRecord(key, 'its sha256 is not the one in update.json: it was changed');
    return decodeBatchFile(bytes, key).arrays;
  }
}

function servedOf({ model }: RunSpec): ServedModel {
  if (model.served) return model.served;
  throw new Error('a run without model.served has come to a node of a Tinker server');
}

/** The model may hold something else than the records say, or may be gone. */
function isDoubtful(error: unknown): boolean {
  return [ModelLost, InDoubt, TinkerRefused, InstanceGivenUp, BadTinkerAnswer].some(
    (kind) => error instanceof kind,
  );
}

function maxWaitMs({ spec }: RunRecord): number {
  return spec.generator.max_wait_s * 1000;
}

function signalOf(signal: AbortSignal | undefined): WaitOptions {
  return signal ? { signal } : {};
}

/** Requests may wait for long: the heartbeat goes on, and says what for. */
function waiting(record: RunRecord, { signal, progress }: Partial<Attended>, work: object): WaitOptions {
  let since: number | null = null;
  return {
    ...signalOf(signal),
    maxWaitMs: maxWaitMs(record),
    onWaiting: ({ reason }) => {
      since = reason === undefined ? null : (since ?? Date.now());
      const wait = { waiting: policyServer, waiting_since: since, waiting_reason: reason };
      progress?.({ ...work, ...(since === null ? {} : wait) });
    },
  };
}
