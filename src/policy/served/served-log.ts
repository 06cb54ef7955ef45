// What the records of a run say of its steps on a Tinker server: saved states, and logged batches with their requests.
import { sha256Hex } from '../../base/sha256.js';
import { chunksOf } from '../../engine/tinker/passes.js';
import type { InstanceRecord, SavedStateRecord } from '../../spec/records/served-model.js';
import { decodeBatchFile } from '../../store/files/batch-file.js';
import {
  batchKey,
  controlFolder,
  instancesFolder,
  rescoredKey,
  sequenceKey,
} from '../../store/record-keys.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { UnreadableRecord } from '../../store/record-errors.js';
import { keysSetAsideBy, readControl } from '../../store/runs/control-records.js';
import { chooseRescored, readRescored, type StepBatch } from '../../store/runs/rescored-logprobs.js';
import { openRunView } from '../../store/runs/quarantine.js';
import { readPlan, readUpdate, readUpdateIfAny, timelineOf } from '../../store/runs/run-records.js';
import { readApplied, readSavedStates, withoutRemoved } from '../../store/runs/served-models.js';
import { readBatch } from '../../store/runs/stored-batch.js';
import type { StepToApply } from './served-instance.js';
import { checkedSequences, forCheck, type WeightCheck } from './weight-check.js';

/** A committed step; whoever applies it again says what is checked before, and whether the state is saved. */
export type LoggedStep = Omit<StepToApply, 'before' | 'saves'>;

/** A check does not depend on how a step's requests were divided. */
const unlimited = { sequences: Infinity, tokens: Infinity };

export class ServedLog {
  constructor(private readonly store: ObjectStore) {}

  /** The saved states of a step that are not removed, as they were recorded. */
  async savedAt(run: string, step: number): Promise<SavedStateRecord[]> {
    return withoutRemoved(await this.everSavedAt(run, step));
  }

  /** A fork may have saved a step of its parent again. */
  private async everSavedAt(run: string, step: number): Promise<SavedStateRecord[]> {
    const timeline = await timelineOf(this.store, run, step);
    const timelines = timeline === run ? [run] : [timeline, run];
    return (await Promise.all(timelines.map((one) => readSavedStates(this.store, one, step)))).flat();
  }

  /**
   * True if the state was saved by another model than the one whose log-probs its update records: its last batch was applied again, and
   * servers may add up gradients in another order.
   */
  async isAppliedAgain(
    run: string,
    { run: of, step, instance }: Pick<SavedStateRecord, 'run' | 'step' | 'instance'>,
  ): Promise<boolean> {
    const { identity, observed } = await readUpdate(this.store, run, step);
    return observed.served?.instance !== instance || of !== identity.run;
  }

  /** `isAppliedAgain` for the saved state that an instance began with. */
  private async beganAgain(run: string, { path, step }: InstanceRecord): Promise<boolean> {
    if (path === null) return false;
    const saved = (await this.everSavedAt(run, step)).find((one) => one.path === path);
    return saved === undefined || this.isAppliedAgain(run, saved);
  }

  /** A plan as its run sees it: one that was set aside is replaced (R24). */
  async plan(place: Parameters<typeof readPlan>[1]): ReturnType<typeof readPlan> {
    return readPlan(await openRunView(this.store, place.run), place);
  }

  async isApplied(run: string, step: number): Promise<boolean> {
    return (await readUpdate(this.store, run, step)).identity.applied === true;
  }

  /** Once a batch is sealed, its update may have begun. */
  async mayBePast(run: string, step: number): Promise<boolean> {
    const after = step + 1;
    if (await readUpdateIfAny(this.store, run, after)) return true;
    return (await readBatch(this.store, run, after)) !== null;
  }

  /**
   * The newest step up to `step` that the records say `instance` has taken, or with which it began, and its requests by then. An update proves
   * that only for the instance that it names: another one may have applied the batch again, or may not. `again`: it has taken the step's batch
   * after another one, or began with a state that had.
   */
  async taken(
    instance: InstanceRecord,
    step: number,
  ): Promise<{ step: number; requests: number; again: boolean }> {
    const { run, n, step: first, path } = instance;
    const view = await openRunView(this.store, run);
    for (let at = step; at > first; at--) {
      const { identity, observed } = await readUpdate(this.store, run, at);
      if (observed.served?.instance === n && identity.run === run)
        return { step: at, requests: observed.served.requests, again: false };
      const again = await readApplied(view, run, n, at);
      if (again) return { step: at, requests: again.requests, again: true };
    }
    const again = await this.beganAgain(run, instance);
    return { step: first, requests: path === null ? 0 : 1, again };
  }

  /** True if the next update that changes the state after `step` is committed and begins a training phase. */
  async precedesPhase(run: string, step: number): Promise<boolean> {
    for (let next = step + 1; ; next++) {
      const update = await readUpdateIfAny(this.store, run, next);
      if (!update) return false;
      if (update.identity.applied === true) return (await this.plan(update.identity)).optimizer.reset_moments;
    }
  }

  /** True if one of the steps `from` to `to` was applied. */
  async hasApplied(run: string, from: number, to: number): Promise<boolean> {
    for (let step = from; step <= to; step++) if (await this.isApplied(run, step)) return true;
    return false;
  }

  /** The check of the state after `step`; null for state 0, and where an earlier version applied the last batch. */
  async checkOf(run: string, step: number): Promise<WeightCheck | null> {
    for (let at = step; at > 0; at--) {
      const { identity, observed } = await readUpdate(this.store, run, at);
      if (identity.applied !== true) continue;
      if (!observed.served) return null;
      const { loss } = await this.plan(identity);
      const [miniBatch = []] = chunksOf(await this.batchOf(identity), loss, 'sum', unlimited);
      return { step: at, data: forCheck(checkedSequences(miniBatch)), ...observed.served.check };
    }
    return null;
  }

  /** True if an update of the steps `from` to `to` left weights on the server that are not finite. */
  async hasNonFinite(run: string, from: number, to: number): Promise<boolean> {
    for (let step = from; step <= to; step++) {
      const { applied } = (await readUpdate(this.store, run, step)).identity;
      if (applied !== true && applied.reason === 'non_finite') return true;
    }
    return false;
  }

  /** Null if the step applied nothing. */
  async step(run: string, step: number): Promise<LoggedStep | null> {
    const { identity, observed } = await readUpdate(this.store, run, step);
    if (identity.applied !== true) return null;
    const plan = await this.plan(identity);
    const batch = await this.batchOf(identity);
    const after = observed.served ? { after: observed.served.check } : {};
    const logged = { step, plan, batch, stepId: identity.step_id, ...after };
    const { rescored: recorded } = identity;
    if (recorded === undefined) return { ...logged, keepRescored: this.keepRescored(identity) };
    // They are read before a request is sent: what a replay has sent must be paid for.
    const view = await openRunView(this.store, identity.run);
    const rescored = await readRescored(view, identity, batch.target_rows.length, recorded);
    return { ...logged, keepRescored: () => Promise.resolve(rescored) };
  }

  keepRescored(place: StepBatch): StepToApply['keepRescored'] {
    return async (logprobs) => chooseRescored(await openRunView(this.store, place.run), place, logprobs);
  }

  /** True if the log-probs of a sealed step were set aside (R24) and not recorded again since. */
  async lacksRescored(run: string, step: number): Promise<boolean> {
    const store = await openRunView(this.store, run);
    const batch = await readBatch(store, run, step);
    if (batch === null) return false;
    const key = rescoredKey(run, step, sha256Hex(batch));
    return (await store.head(key)) === null && (await this.store.head(key)) !== null;
  }

  /** True if a batch of the step was set aside (R24) since the model was recorded: requests with it may have been sent. */
  async mayHoldBatchSetAside({ run, n }: InstanceRecord, step: number): Promise<boolean> {
    const key = batchKey(run, step);
    let since: string | null = null;
    for (const record of await readControl(this.store, run)) {
      const batch = keysSetAsideBy(record.change).find((one) => one.startsWith(key));
      // A batch that was never sealed was never sent.
      if (batch !== undefined && (await this.store.head(batch)))
        since = sequenceKey(controlFolder(run), record.n);
    }
    if (since === null) return false;
    const [made, aside] = await Promise.all(
      [sequenceKey(instancesFolder(run), n), since].map((one) => this.listedAt(one)),
    );
    return !made || !aside || made <= aside;
  }

  /** The store's own time of an object, as listed: a bucket may give whole seconds for a single one. */
  private async listedAt(key: string): Promise<Date | null> {
    for await (const info of this.store.list(key)) if (info.key === key) return info.modified;
    return null;
  }

  /** Throws `UnreadableRecord` if the batch is gone or changed. */
  async batchOf({ run, step, batch }: StepBatch) {
    const key = batchKey(run, step);
    const bytes = await readBatch(await openRunView(this.store, run), run, step);
    if (bytes === null) throw new UnreadableRecord(key, 'it is not in the store');
    if (sha256Hex(bytes) !== batch)
      throw new UnreadableRecord(key, 'its sha256 is not the one in update.json: it was changed');
    return decodeBatchFile(bytes, key).arrays;
  }
}
