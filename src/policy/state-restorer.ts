// Restores a state (R15). The weights depend only on the records, so the restorer starts from the newest held or saved state that agrees
// with the records, and applies the logged batches after it.
import { rm, stat, utimes } from 'node:fs/promises';
import type { FileEngine } from '../engine/file-engine.js';
import { type UpdateProgress, type UpdateResult, EngineError } from '../engine/policy-engine.js';
import { type Restored, rounded, type WorkContext } from './attempt-scope.js';
import { BaseModel } from './base-model.js';
import { ReferenceWeights } from './reference-weights.js';
import { fileExists, type StateFolder, statesKept } from './state-folder.js';
import { fetchBatch, loggedUpdates } from './logged-updates.js';
import { provenances, type StepUpdate } from './state-keeper.js';
import type { Digest } from '../spec/records/parts.js';
import type { RunRecord } from '../spec/records/run-records.js';
import { fetchCheckpoint, listCheckpoints } from '../store/runs/checkpoints.js';
import { updateKey } from '../store/record-keys.js';
import type { ObjectStore } from '../store/objects/object-store.js';
import { openRunView } from '../store/runs/quarantine.js';
import { readState } from '../store/runs/run-records.js';
import { CorruptCheckpoint, Diverged, UnreadableRecord } from '../store/record-errors.js';

interface StateRestorerOptions {
  store: ObjectStore;
  engine: FileEngine;
  /** States saved by this node. */
  states: StateFolder;
  /** States fetched from the store. Kept because a sweep uses all of a run's states, and a retry needs the last few again. */
  fetched: StateFolder;
  /** Folder for fetched batches. */
  folder: string;
  log: (message: string) => void;
}

type LoadedState = Omit<Restored['restore'], 'seconds'>;

/** Where a state's file is: saved by this node on its disk, fetched earlier from the store, or only in the store. */
type Source = 'disk' | 'fetched' | 'store';

/** Callers must hold the engine's lock exclusively. */
export class StateRestorer {
  readonly base: BaseModel;
  /** The weights against which the KL terms of the restored run are taken. */
  readonly reference: ReferenceWeights;

  constructor(private readonly options: StateRestorerOptions) {
    this.base = new BaseModel(options);
    this.reference = new ReferenceWeights(options, this.base, (record, step, state, attempt) =>
      this.restoreAfter(() => Promise.resolve(), record, step, state, attempt),
    );
  }

  /** Applies the logged batch of a step to the state before the step. Throws the reason of `signal` when it aborts. */
  async apply(update: StepUpdate): Promise<UpdateResult> {
    const { store, folder } = this.options;
    const view = await openRunView(store, update.run);
    const { plan, batch } = update;
    const batchPath = await fetchBatch(view, folder, { run: plan.run, step: plan.step, batch });
    try {
      return await this.compute(update, batchPath);
    } finally {
      await rm(batchPath, { force: true });
    }
  }

  private async compute(
    { plan, batch, stepId, onProgress, signal }: StepUpdate,
    batchPath: string,
  ): Promise<UpdateResult> {
    try {
      return await this.options.engine.update(
        {
          state: plan.previous_state,
          step_id: stepId,
          batchPath,
          batchSha256: batch,
          ...plan.optimizer,
          loss: plan.loss,
          ...(plan.reference === undefined ? {} : { reference: plan.reference }),
          temperature: plan.kind === 'grpo' ? plan.sampling.temperature : 1,
        },
        onProgress,
        signal,
      );
    } catch (error) {
      signal?.throwIfAborted();
      throw error;
    }
  }

  /** Restores the state after `step`, and the reference weights that `step` needs. */
  async restore(
    record: RunRecord,
    step: number,
    wanted: Digest,
    attempt: WorkContext,
    newestCheckpoint = step,
  ): Promise<void> {
    // The reference comes first, because loading it may replace the held state.
    const first = (): Promise<void> => this.reference.hold(record, step, attempt);
    await this.restoreAfter(first, record, step, wanted, attempt, newestCheckpoint);
  }

  /**
   * Restores the state after `step`. After a divergence it tries again on a fresh engine, then from an older checkpoint; only then must a
   * person look (R19). `first`: what comes before each try.
   */
  private async restoreAfter(
    first: () => Promise<void>,
    record: RunRecord,
    step: number,
    wanted: Digest,
    attempt: WorkContext,
    newestCheckpoint = step,
  ): Promise<void> {
    const { run } = record;
    let newest = newestCheckpoint;
    for (const next of [...provenances.slice(1), null]) {
      const begunAt = performance.now();
      await first();
      const held = await this.heldStep(record, newest);
      const loaded: LoadedState =
        held === null
          ? await this.loadNewest(record, newest, attempt)
          : { step: held, from: 'held', bytes: 0 };
      const { step: start } = loaded;
      const loadedAt = performance.now();
      try {
        await this.replay(run, start, step, wanted, attempt);
        attempt.restored?.({
          restore: { ...loaded, seconds: rounded((loadedAt - begunAt) / 1000) },
          replay: { steps: step - start, seconds: rounded((performance.now() - loadedAt) / 1000) },
        });
        const from = held === null ? 'checkpoint' : 'the held state of step';
        const how = start < step ? `${from} ${start} and ${step - start} logged updates` : 'its saved state';
        this.options.log(`restored ${run} step ${step}: ${how}`);
        return;
      } catch (error) {
        if (!(error instanceof Diverged) || next === null) throw error;
        this.options.log(`${error.message}; trying once more ${next}`);
        // A restarted engine holds no state, so the next try begins with a checkpoint.
        await this.options.engine.restart();
        if (next === 'from an older checkpoint') newest = Math.max(start - 1, 0);
      }
    }
  }

  /**
   * The step ≤ `newest` whose state the engine holds. Null if it holds no such state, or if a checkpoint is newer. This helps a node that
   * shares a run's rollouts: such a node is only one update behind, and a load would take longer than that update.
   */
  private async heldStep(record: RunRecord, newest: number): Promise<number | null> {
    const held = await this.options.engine.held();
    if (!held) return null;
    const [checkpoint] = await this.checkpoints(record, newest);
    for (let step = newest; step >= (checkpoint?.step ?? 0); step--) {
      if ((await readState(this.options.store, record.run, step)) === held.state) return step;
    }
    return null;
  }

  /** Applies the logged batches after `start`, and compares each state with its record. */
  private async replay(
    run: string,
    start: number,
    step: number,
    wanted: Digest,
    { signal, progress }: WorkContext,
  ): Promise<void> {
    const { store, folder } = this.options;
    for await (const logged of loggedUpdates(store, folder, run, { from: start + 1, to: step })) {
      signal.throwIfAborted();
      const { step: next, identity, input } = logged;
      const replayed = { restoring: step, replayed: next - 1 - start, of: step - start };
      progress(replayed);
      if (input === null) continue;
      const onShards = (shards: UpdateProgress): void => progress({ ...replayed, shards });
      const { batch, step_id: stepId } = identity;
      const update = { run, step: next, plan: input.plan, batch, stepId, onProgress: onShards, signal };
      const result = await this.compute(update, input.batchPath);
      if (result.state === identity.state) continue;
      throw new Diverged(
        `step ${next} of ${run} was recomputed as state ${result.state}, but its record says ${identity.state}. ` +
          `Compare both with: longhaul audit ${run} --replay ${next}..${next}`,
        { key: updateKey(run, next), stored: identity.state, computed: result.state },
      );
    }
    const held = await this.options.engine.held();
    if (held?.state !== wanted) {
      throw new EngineError('WrongState', `restored ${held?.state ?? 'nothing'}, wanted ${wanted}`);
    }
  }

  /** Loads the newest usable state ≤ `step`. If a state is not usable, logs that and tries the next older state. */
  private async loadNewest(record: RunRecord, step: number, attempt: WorkContext): Promise<LoadedState> {
    const { run } = record;
    const { signal, progress } = attempt;
    const { store, log } = this.options;
    for (const { step: candidate, sources } of await this.checkpoints(record, step)) {
      const wanted = await readState(store, run, candidate);
      for (const source of sources) {
        const states = source === 'disk' ? this.options.states : this.options.fetched;
        const path = states.path(run, { step: candidate, state: wanted });
        if (source !== 'store' && !(await fileExists(path))) continue;
        signal.throwIfAborted();
        progress({ restoring: step, from: `the checkpoint of step ${candidate} on ${source}` });
        const under = await this.base.under(record, attempt);
        try {
          if (source === 'store') {
            await states.pruneAll(statesKept - 1);
            await states.prepare(run);
            const onProgress = (bytes: number): void => progress({ restoring: step, fetched: bytes });
            await fetchCheckpoint(store, record, candidate, path, { signal, onProgress });
          }
          const held = await this.options.engine.loadState({ path, ...under });
          if (held.state === wanted) {
            const { size } = await stat(path);
            if (source === 'fetched') await utimes(path, new Date(), new Date());
            return { step: candidate, from: source === 'store' ? 'store' : 'disk', bytes: size };
          }
          log(
            `the state of step ${candidate} on ${source} is ${held.state}, but its record says ${wanted}: using an older one`,
          );
        } catch (error) {
          signal.throwIfAborted();
          // An error of the store, the disk or the engine does not mean that the checkpoint is damaged: a later try may succeed.
          if (!isDamage(error)) throw error;
          // The damage may be in the file of the base weights instead; the next try fetches it again.
          if (under.base !== undefined && (await this.base.forgetIfDamaged(record, under.base))) throw error;
          log(
            `the checkpoint of step ${candidate} on ${source} is not usable (${error.message}): using an older one`,
          );
        }
        await rm(path, { force: true });
      }
    }
    await this.base.restore(record, attempt);
    return { step: 0, from: 'base', bytes: 0 };
  }

  /** Steps ≤ `step` that may have a checkpoint, newest first, with the places to look for it. */
  private async checkpoints(record: RunRecord, step: number): Promise<{ step: number; sources: Source[] }[]> {
    const { store, states, fetched } = this.options;
    const stepsIn = async (folder: StateFolder): Promise<Set<number>> =>
      new Set((await folder.list(record.run)).map((state) => state.step));
    const [local, again] = await Promise.all([stepsIn(states), stepsIn(fetched)]);
    const stored = new Set(await listCheckpoints(store, record));
    return [...new Set([...local, ...again, ...stored])]
      .filter((candidate) => candidate >= 1 && candidate <= step)
      .sort((a, b) => b - a)
      .map((candidate) => ({
        step: candidate,
        sources: [
          ...(local.has(candidate) ? (['disk'] as const) : []),
          ...(again.has(candidate) ? (['fetched'] as const) : []),
          ...(stored.has(candidate) ? (['store'] as const) : []),
        ],
      }));
  }

  /** The step below the newest checkpoint ≤ `step`, so that a restore does not use that checkpoint. */
  async olderThanNewest(record: RunRecord, step: number): Promise<number> {
    const [newest] = await this.checkpoints(record, step);
    return Math.max((newest?.step ?? 0) - 1, 0);
  }
}

/** `BadFile`: the engine cannot use the file's contents. `WrongBase`: the file names other base weights. */
function isDamage(error: unknown): error is Error {
  if (error instanceof EngineError) return ['BadFile', 'WrongBase'].includes(error.code);
  return error instanceof CorruptCheckpoint || error instanceof UnreadableRecord;
}
