// The reference weights of a run with KL terms, which the engine holds beside its state: those with which GRPO began.
import type { FileEngine } from '../engine/file-engine.js';
import type { Digest } from '../spec/records/parts.js';
import type { RunRecord } from '../spec/records/run-records.js';
import { lastWarmStep } from '../spec/schedule.js';
import { weightsExist } from '../store/files/weights.js';
import type { ObjectStore } from '../store/objects/object-store.js';
import { CorruptCheckpoint, Diverged } from '../store/record-errors.js';
import { updateKey } from '../store/record-keys.js';
import { readRun, readState, type Reference, referenceOf, timelinesOf } from '../store/runs/run-records.js';
import type { WorkContext } from './attempt-scope.js';
import type { BaseModel } from './base-model.js';

interface ReferenceWeightsOptions {
  store: ObjectStore;
  engine: FileEngine;
  log: (message: string) => void;
}

/** Callers must hold the engine's lock exclusively. */
export class ReferenceWeights {
  /** `restoreState`: restores the state after a step, without reference weights. */
  constructor(
    private readonly options: ReferenceWeightsOptions,
    private readonly base: BaseModel,
    private readonly restoreState: (
      record: RunRecord,
      step: number,
      state: Digest,
      attempt: WorkContext,
    ) => Promise<void>,
  ) {}

  /** True if the engine holds exactly the reference weights that `step` needs: those of its KL terms, or none. */
  async holdsFor(record: RunRecord, step: number): Promise<boolean> {
    const wanted = await this.wantedAt(record, step);
    return (await this.held()) === (wanted?.weights ?? null);
  }

  /**
   * Loads the reference weights that `step` needs, or drops them. This may replace the held state. With LoRA, every state of the run
   * contains the reference weights; without LoRA, only the state with which GRPO began does.
   */
  async hold(record: RunRecord, step: number, attempt: WorkContext): Promise<void> {
    const { run } = record;
    const { engine, log } = this.options;
    const wanted = await this.wantedAt(record, step);
    if ((await this.held()) === (wanted?.weights ?? null)) return;
    await this.forget();
    if (wanted === null) return;
    const { weights } = wanted;
    attempt.progress({ restoring: wanted.step, reference: weights });
    await this.load(record, wanted, attempt);
    const found = await engine.setReference({ held: true });
    if (found !== weights) {
      throw new Diverged(
        `the model after step ${wanted.step} of ${run} has weights ${found ?? 'none'}, but its record says ${weights}`,
        { key: updateKey(wanted.run, wanted.step), stored: weights, computed: found },
      );
    }
    log(`the KL term of ${run} is taken against the weights after step ${wanted.step}, ${weights}`);
  }

  /** Drops the reference of another run: the next load may need its memory. */
  async forget(): Promise<void> {
    if ((await this.held()) !== null) await this.options.engine.setReference(null);
  }

  /**
   * Loads the weights that a warm start produced. The first node that needs them uploads them to the store: any node could compute them
   * from the records, but without a checkpoint that takes as long as the warm start itself.
   */
  private async load(record: RunRecord, { step, weights }: Reference, attempt: WorkContext): Promise<void> {
    const { store, engine } = this.options;
    const [held, state] = [await engine.held(), await readState(store, record.run, step)];
    if (step === 0) {
      if (held?.weights !== weights) await this.base.restore(record, attempt);
      return;
    }
    if (held?.state !== state && held?.weights !== weights) {
      if (await this.loadStored(weights, record, attempt)) return;
      await this.restoreState(record, step, state, attempt);
    }
    // Upload only weights that agree with the record; the caller reports a difference.
    if ((await engine.held({ weights: true }))?.weights === weights)
      await this.base.keepWeights(weights, attempt);
  }

  /** False if the store has no usable weights; they can then be computed. */
  private async loadStored(weights: Digest, record: RunRecord, attempt: WorkContext): Promise<boolean> {
    const { store, log } = this.options;
    if (!(await weightsExist(store, weights))) return false;
    try {
      await this.base.holdStored(weights, record, attempt);
      return true;
    } catch (error) {
      if (!(error instanceof CorruptCheckpoint)) throw error;
      log(`the weights ${weights} are not usable (${error.message}): computing them from the records`);
      return false;
    }
  }

  private async held(): Promise<Digest | null> {
    return (await this.options.engine.held())?.reference ?? null;
  }

  /**
   * Null during the warm start, and if neither the run nor an ancestor has a KL term. Ancestors count because their logged updates may be
   * applied again.
   */
  private async wantedAt({ run, spec }: RunRecord, step: number): Promise<Reference | null> {
    const { store } = this.options;
    if (step < lastWarmStep(spec)) return null;
    for await (const timeline of timelinesOf(store, run)) {
      const ancestor = await readRun(store, timeline.run);
      if (ancestor.spec.trainer.use_kl_loss) return referenceOf(store, run);
    }
    return null;
  }
}
