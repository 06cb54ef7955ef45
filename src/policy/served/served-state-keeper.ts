// The keeper of states on a Tinker server: named, saved there, and made again from the newest saved one and the logged batches after it.
import { randomUUID } from 'node:crypto';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { WaitOptions } from '../../engine/tinker/futures.js';
import type { ServedPolicy, TinkerEngine } from '../../engine/tinker/sampling.js';
import { itemOf, sentFor } from '../../engine/tinker/sent-tokens.js';
import type { TinkerService } from '../../engine/tinker/service.js';
import { policyServer, type UpdateResult } from '../../engine/policy-engine.js';
import type { Digest } from '../../spec/records/parts.js';
import type { RunRecord } from '../../spec/records/run-records.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { UnreadableRecord } from '../../store/record-errors.js';
import { checkpointDataKey, writeCheckpoint } from '../../store/runs/checkpoints.js';
import { isSamplerOf, nameOfBase } from '../../store/records/served-names.js';
import { readModels } from '../../store/runs/served-models.js';
import { readRun } from '../../store/runs/run-records.js';
import type { WorkContext } from '../attempt-scope.js';
import type {
  BaseState,
  CheckpointUpload,
  CommittedState,
  Provenance,
  StateKeeper,
  StateReader,
  StepUpdate,
} from '../state-keeper.js';
import { InstanceGivenUp, NonFiniteStep } from './given-up.js';
import type { ServedInstance } from './served-instance.js';
import { ServedInstances } from './served-instances.js';
import { ServedLog } from './served-log.js';
import { isRescored, isSaved, servedOf } from './step-requests.js';
import { removeSaved } from './removed-states.js';

interface ServedStateKeeperOptions {
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

export class ServedStateKeeper implements StateKeeper {
  private readonly log: ServedLog;
  private readonly instances: ServedInstances;
  /** The model that is sampled. */
  private sampling: ServedInstance | null = null;
  private readonly emptied = new Set<string>();

  constructor(private readonly options: ServedStateKeeperOptions) {
    this.log = new ServedLog(options.store);
    this.instances = new ServedInstances(options, this.log);
    // A state that the server has lost is held no more: the next use makes it again (R35).
    options.engine.onLost = () => void (this.sampling && this.instances.giveUp(this.sampling));
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

  async hold({ run, step, state }: CommittedState, reader: StateReader, attempt: WorkContext): Promise<void> {
    const record = await readRun(this.options.store, run);
    const options = waiting(record, attempt, { restoring: step });
    const instance = await this.instances.toSample(record, step, reader, options);
    if (instance.holds?.state !== state)
      throw new UnreadableRecord(
        `runs/${run}`,
        `the state of step ${step} is ${state}, and its batches name ${instance.holds?.state ?? 'none'}`,
      );
    await this.instances.guarded(instance, async () => {
      const path = await sentFor({ run, item: itemOf.other }, () => instance.sampler(options));
      this.sampling = instance;
      this.options.engine.sampled = { state, path, maxWaitMs: maxWaitMs(record) };
    });
  }

  async holdForUpdate(
    { run, step }: CommittedState,
    _stepId: Digest,
    _provenance: Provenance,
    attempt: WorkContext,
  ): Promise<void> {
    const record = await readRun(this.options.store, run);
    const options = waiting(record, attempt, { restoring: step });
    const instance = await this.instances.toTrain(record, step, options);
    const plan = await this.log.plan({ run, step: step + 1 });
    // Requests of an earlier attempt hold the batch or the log-probs that were set aside, and the next ones would have the same numbers (R34).
    const isMixed =
      (isRescored(plan) && (await this.log.lacksRescored(run, step + 1))) ||
      (await this.log.mayHoldBatchSetAside(instance.record, step + 1));
    if (plan.optimizer.reset_moments && (isMixed || !instance.hasZeroMoments))
      await this.instances.beginPhase(record, step, options);
    else if (isMixed) await this.instances.create(record, step, options);
  }

  idle(): Promise<void> {
    return this.instances.endEvaluating();
  }

  async forget(): Promise<void> {
    const trained = this.instances.driven?.instance;
    if (trained) await this.instances.giveUp(trained);
  }

  async apply({
    run,
    step,
    plan,
    batch: digest,
    stepId,
    onProgress,
    ...attempt
  }: StepUpdate): Promise<UpdateResult> {
    const instance = this.instances.driven?.instance;
    if (!instance || instance.holds?.state !== plan.previous_state)
      throw new InstanceGivenUp(`no model on the server holds the state before step ${step}`);
    await this.instances.refuseOlder(run, instance.record);
    this.options.engine.sampled = null;
    onProgress?.({ done: 0, total: 1 });
    const place = { run, step, batch: digest };
    const batch = await this.log.batchOf(place);
    const record = await readRun(this.options.store, run);
    const options = waiting(record, attempt, { verb: 'update' });
    const saves = isSaved(record.spec, step);
    return this.instances
      .guarded(instance, async () => {
        const keepRescored = this.log.keepRescored(place);
        const before = await this.log.checkOf(run, step - 1);
        const { saved, ...result } = await sentFor({ run, item: itemOf.update(step) }, () =>
          instance.apply({ step, plan, batch, stepId, before, saves, keepRescored }, options),
        );
        // Another process may have ended the model between the step and its check; it records that first, so look now.
        if (saved)
          await this.instances.recordSaved(run, { step, state: result.state }, saved, instance.record);
        else await this.instances.refuseOlder(run, instance.record);
        return result;
      })
      .catch((error: unknown) => {
        if (!(error instanceof NonFiniteStep)) throw error;
        return { state: plan.previous_state, applied: { reason: 'non_finite' }, metrics: {} };
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

  /** A later checkpoint's upload removes what is no longer needed: then the checkpoint is in the store. */
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
      const { engine, by, log } = this.options;
      await removeSaved({ store, service, by, log, emptied: this.emptied }, run, engine.sampled?.path);
    } finally {
      await rm(statePath, { force: true });
    }
  }

  /** Where the adapters of a state can be had: the newest model that has them. */
  private async archiveOf(
    { run, state }: CommittedState,
    signal?: AbortSignal,
  ): Promise<{ model: string; name: string } | null> {
    const { store, service } = this.options;
    for (const { record } of (await readModels(store, run)).reverse()) {
      const { model } = record;
      const found = (await service.checkpoints(model, signalOf(signal))).find(
        (one) => one.checkpoint_type === 'sampler' && isSamplerOf(one.checkpoint_id, state),
      );
      if (found) return { model, name: found.checkpoint_id };
    }
    return null;
  }

  private async savedBefore({ run, step }: CommittedState): Promise<string> {
    for (let before = step; before > 0; before--) {
      const path = (await this.log.savedAt(run, before)).at(-1)?.path;
      if (path !== undefined) return path;
    }
    return this.options.policy.model;
  }
}

function maxWaitMs({ spec }: RunRecord): number {
  return spec.generator.max_wait_s * 1000;
}

function signalOf(signal: AbortSignal | undefined): WaitOptions {
  return signal ? { signal } : {};
}

/** Requests may wait for long: the heartbeat goes on, and says what for. */
function waiting(record: RunRecord, { signal, progress }: Partial<WorkContext>, work: object): WaitOptions {
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
