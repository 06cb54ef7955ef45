// What the records of a run say of its steps on a Tinker server: saved states, and logged batches with their requests.
import { sha256Hex } from '../../base/sha256.js';
import type { Digest } from '../../spec/records/parts.js';
import type { InstanceRecord, SavedStateRecord } from '../../spec/records/served-model.js';
import type { RunSpec } from '../../spec/run-spec.js';
import { decodeBatchFile } from '../../store/files/batch-file.js';
import { batchKey } from '../../store/objects/layout.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { UnreadableRecord } from '../../store/objects/store-errors.js';
import { chooseRescored } from '../../store/runs/rescored-logprobs.js';
import { openRunView } from '../../store/runs/quarantine.js';
import { readPlan, readUpdate, timelineOf } from '../../store/runs/run-records.js';
import { readSavedStates } from '../../store/runs/served-models.js';
import { readBatch } from '../../store/runs/stored-batch.js';
import { ServedInstance, type StepToApply } from './served-instance.js';

export class ServedLog {
  constructor(private readonly store: ObjectStore) {}

  /** The saved states of a step that are not removed, as they were recorded. A fork may have saved a step of its parent again. */
  async savedAt(run: string, step: number): Promise<SavedStateRecord[]> {
    const timeline = await timelineOf(this.store, run, step);
    const timelines = timeline === run ? [run] : [timeline, run];
    const saved = (await Promise.all(timelines.map((one) => readSavedStates(this.store, one, step)))).flat();
    const removed = new Set(saved.filter((one) => one.removed).map(({ path }) => path));
    return saved.filter(({ path }) => !removed.has(path));
  }

  /** As the run sees it: a plan that was set aside is replaced (R24). */
  async plan(run: string, step: number): ReturnType<typeof readPlan> {
    return readPlan(await openRunView(this.store, run), run, step);
  }

  async isApplied(run: string, step: number): Promise<boolean> {
    return (await readUpdate(this.store, run, step)).identity.applied === true;
  }

  /**
   * Where counting the requests of `instance` up to the state after `step` may begin: at the newest state that it saved, or at the one that
   * it began with. `requests`: its requests up to there, the load among them.
   */
  async counted(
    { run, n, step: first, path }: InstanceRecord,
    step: number,
  ): Promise<{ step: number; requests: number }> {
    for (let at = step; at > first; at--) {
      const saved = (await readSavedStates(this.store, run, at)).find((one) => one.instance === n);
      if (saved) return { step: at, requests: saved.number };
    }
    return { step: first, requests: path === null ? 0 : 1 };
  }

  /** True if an update of the steps `from` to `to` left weights on the server that are not finite. */
  async hasNonFinite(run: string, from: number, to: number): Promise<boolean> {
    for (let step = from; step <= to; step++) {
      const { applied } = (await readUpdate(this.store, run, step)).identity;
      if (applied !== true && applied.reason === 'non_finite') return true;
    }
    return false;
  }

  /** Null if the step applied nothing. `sealed`: the step is not committed, but its plan and batch are there. */
  async step(run: string, step: number, sealed = false): Promise<StepToApply | null> {
    const store = await openRunView(this.store, run);
    if (sealed) {
      const { record: plan } = await readPlan(store, run, step);
      const batch = await this.batchOf(run, step);
      return { step, plan, batch, stepId: '', keepRescored: (logprobs) => Promise.resolve(logprobs) };
    }
    const { identity } = await readUpdate(store, run, step);
    if (identity.applied !== true) return null;
    const { record: plan } = await readPlan(store, run, step, identity.plan);
    const batch = await this.batchOf(run, step, identity.batch);
    const keepRescored = this.keepRescored(run, step, identity.batch);
    return { step, plan, batch, stepId: identity.step_id, keepRescored };
  }

  keepRescored(run: string, step: number, batch: Digest): StepToApply['keepRescored'] {
    const { store } = this;
    return async (logprobs) =>
      chooseRescored(store, { run: await timelineOf(store, run, step), step, batch }, logprobs);
  }

  /** Number of the request that saved the state of `step`, among those of `instance`. */
  async numberOfSave(run: string, spec: RunSpec, instance: InstanceRecord, step: number): Promise<number> {
    const counted = await this.counted(instance, step - 1);
    let number = counted.requests;
    for (let next = counted.step + 1; next <= step; next++) {
      const logged = await this.step(run, next, next === step);
      number += logged ? ServedInstance.requestsOf(spec, logged) : 0;
    }
    return number;
  }

  /** Throws `UnreadableRecord` if the batch is gone or changed. */
  async batchOf(run: string, step: number, recorded?: Digest) {
    const store = await openRunView(this.store, run);
    const timeline = await timelineOf(store, run, step);
    const key = batchKey(timeline, step);
    const bytes = await readBatch(store, timeline, step);
    if (bytes === null) throw new UnreadableRecord(key, 'it is not in the store');
    if (recorded !== undefined && sha256Hex(bytes) !== recorded)
      throw new UnreadableRecord(key, 'its sha256 is not the one in update.json: it was changed');
    return decodeBatchFile(bytes, key).arrays;
  }
}
