// One model of a run on a Tinker server, and the numbered requests that train it (R34): what a step sends follows from its batch, its plan and
// the run's spec alone.
import type { Datum } from '../../engine/tinker/wire.js';
import { servedLoss, trainedLogprobs } from '../../engine/tinker/passes.js';
import { TinkerRefused } from '../../engine/tinker/call-errors.js';
import type { RequestOptions, WaitOptions } from '../../engine/tinker/futures.js';
import type { SavedOnServer, TinkerService } from '../../engine/tinker/service.js';
import type { UpdateResult } from '../../engine/policy-engine.js';
import type { BatchArrays } from '../../spec/records/batch.js';
import type { Digest } from '../../spec/records/parts.js';
import type { PlanRecord } from '../../spec/records/plan.js';
import type { InstanceRecord, RecordedCheck, ServedUpdate } from '../../spec/records/served-model.js';
import type { RunSpec, ServedModel } from '../../spec/run-spec.js';
import type { Rescored } from '../../store/runs/rescored-logprobs.js';
import { nameOfSampler, nameOfSave, nameOfState } from '../../store/records/served-names.js';
import { InstanceGivenUp, NonFiniteStep } from './given-up.js';
import { PassFigures } from './pass-figures.js';
import { adamOf, chunked, isRescored, servedOf, weightsTolerance } from './step-requests.js';
import {
  checkedLogprobs,
  checkedSequences,
  forCheck,
  problemOf,
  recordedCheck,
  type WeightCheck,
} from './weight-check.js';

export interface StepToApply {
  step: number;
  plan: PlanRecord;
  batch: BatchArrays;
  stepId: Digest;
  /** The weights before the step; null before the first update, and after one of an earlier version. */
  before: WeightCheck | null;
  /** What the step's first update recorded; absent for that update. */
  after?: RecordedCheck;
  /** Saves the state after the step, with the optimizer. */
  saves: boolean;
  /** Records the trainer's log-probs of the targets, and returns the recorded ones: another process may have been first. */
  keepRescored: (logprobs: Float32Array) => Promise<Rescored>;
}

interface AppliedStep extends UpdateResult {
  served: ServedUpdate;
  /** Absent if the state was not to be saved. */
  saved?: { path: string; number: number };
}

type Holding = { step: number; state: Digest };

/** When the server says that a name is taken, a complete save is listed within so many looks. If it is not, the save was cut off. */
const mostLooks = 40;
/** Between two looks: half of it at least. */
const lookPauseMs = 1_000;

export class ServedInstance {
  /** Null while a step is applied, and after one that failed. */
  holds: Holding | null;
  private sampled: { state: Digest; path: string } | null = null;
  private trained: boolean;
  /** The last batch in the held weights was applied again: another instance's log-probs were recorded for it. */
  private again: boolean;

  /** `next`: number of the next training request. */
  constructor(
    readonly record: InstanceRecord,
    private readonly spec: RunSpec,
    private readonly service: TinkerService,
    holds: Holding,
    private next: number,
    again = false,
  ) {
    this.holds = holds;
    this.again = again;
    this.trained = holds.step > record.step;
  }

  /** The steps up to `holds` changed nothing. */
  skip(holds: Holding): void {
    this.holds = holds;
  }

  /** Path of the saved weights from which the held state is sampled. This save takes the first number of the next step. */
  async sampler(options: WaitOptions): Promise<string> {
    const { holds, record } = this;
    if (!holds) throw new InstanceGivenUp(`the state of model ${record.model} is unknown`);
    if (this.sampled?.state === holds.state) return this.sampled.path;
    const name = nameOfSampler(holds.state);
    const path = await this.save('sampler', name, this.next, options);
    this.sampled = { state: holds.state, path };
    return path;
  }

  /** Sends the requests of the next step. If a process dies, its successor sends exactly the same requests. */
  async apply(step: StepToApply, waiting: WaitOptions): Promise<AppliedStep> {
    const options: RequestOptions = { ...waiting, repeatable: this.served.numbered };
    await this.sampler(options);
    this.holds = null;
    this.trained = true;
    let number = this.next + 1;
    const { service } = this;
    const model_id = this.record.model;
    const loss = servedLoss(step.plan.loss);
    const figures = new PassFigures();
    const check = step.before ? this.checkOnce(step.before, number++, options) : null;
    let rescored: Rescored | undefined;
    if (isRescored(step.plan)) {
      await check?.();
      const first = number;
      number += chunked(this.spec, step.plan, step.batch).flat().length;
      rescored = await step.keepRescored(await this.rescore(step, first, options));
    }
    const miniBatches = chunked(this.spec, step.plan, step.batch, rescored?.logprobs);
    const watched = checkedSequences(miniBatches[0] ?? []);
    const before = new Map<Datum, Record<string, number[]>>();
    for (const [index, chunks] of miniBatches.entries()) {
      for (const data of chunks) {
        const request = { model_id, seq_id: number++, data, ...loss };
        const [, { outputs }] = await together(check?.(), service.pass(request, options));
        figures.add(data, outputs);
        for (const [at, datum] of data.entries()) if (index === 0) before.set(datum, outputs[at] ?? {});
      }
      figures.check(this.served.logprob_tolerance, step.plan.kind === 'grpo' && index === 0);
      const place = { model_id, seq_id: number++ };
      figures.stepped(await service.optimStep(place, adamOf(step.plan, index, this.served), options));
    }
    const data = forCheck(watched);
    const saving = { name: nameOfSave(step.step, step.stepId), number: number + 1 };
    const [after, path] = await together(
      this.logprobsOf(data, options, number++),
      step.saves ? this.save('training', saving.name, number++, options) : null,
    );
    if (!after.every(Number.isFinite)) throw new NonFiniteStep('the weights are not finite after the step');
    const first = checkedLogprobs(
      data,
      watched.map((datum) => before.get(datum) ?? {}),
    );
    if (step.after) this.require({ ...step.after, step: step.step }, after, true);
    const state = nameOfState(step.plan.previous_state, step.stepId);
    this.next = number;
    this.again = step.after !== undefined;
    this.holds = { step: step.step, state };
    return {
      ...{ state, applied: true, metrics: figures.metrics() },
      served: { instance: this.record.n, requests: number - 1, check: recordedCheck(first, after) },
      ...(rescored ? { rescored: rescored.sha256 } : {}),
      ...(path === null ? {} : { saved: { path, number: saving.number } }),
    };
  }

  /**
   * A check of the weights before a step. It is sent with the first of the requests that it comes before, and costs no round trip of its own: if it
   * fails, the model is given up before the optimizer's step, and its gradients with it.
   */
  private checkOnce(check: WeightCheck, seq_id: number, options: WaitOptions): () => Promise<void> {
    let checked: Promise<void> | undefined;
    return () =>
      (checked ??= this.logprobsOf(check.data, options, seq_id).then((found) =>
        this.require(check, found, this.again),
      ));
  }

  private require(check: Omit<WeightCheck, 'data'>, found: readonly number[], appliedAgain = false): void {
    const problem = problemOf(check, found, weightsTolerance(this.served), appliedAgain);
    if (problem !== null)
      throw new InstanceGivenUp(
        `${this.record.model} does not hold the weights after step ${check.step}: ${problem}. If this ` +
          'server gives equal weights other log-probs, a fork needs a larger model.served.weights_tolerance',
      );
  }

  private logprobsOf(data: readonly Datum[], options: WaitOptions, seq_id: number): Promise<number[]> {
    return checkPass(this.service, { model_id: this.record.model, seq_id }, data, options);
  }

  /** Log-probs of the batch's targets before the step, in its order; requests are numbered from `number`. */
  private async rescore(
    { plan, batch }: StepToApply,
    number: number,
    options: RequestOptions,
  ): Promise<Float32Array> {
    const figures = new PassFigures();
    const logprobs: number[] = [];
    for (const data of chunked(this.spec, plan, batch).flat()) {
      const place = { model_id: this.record.model, seq_id: number++ };
      const request = { ...place, data, loss_fn: 'cross_entropy', forward_only: true };
      const { outputs } = await this.service.pass(request, options);
      figures.add(data, outputs);
      logprobs.push(...trainedLogprobs(data, outputs));
    }
    figures.check(this.served.logprob_tolerance, true);
    return Float32Array.from(logprobs);
  }

  /** A 409 for a name proves nothing: only what is listed is saved (R36). */
  private async save(
    type: SavedOnServer['checkpoint_type'],
    name: string,
    seq_id: number,
    options: WaitOptions,
  ): Promise<string> {
    const { service } = this;
    const place = { model_id: this.record.model, seq_id };
    const repeated = { ...options, repeatable: true };
    try {
      return await (type === 'sampler'
        ? service.saveForSampler(place, name, repeated)
        : service.saveWeights(place, name, repeated));
    } catch (error) {
      if (!(error instanceof TinkerRefused && error.status === 409)) throw error;
    }
    for (let looks = 1; ; looks++) {
      const found = (await service.checkpoints(this.record.model, options)).find(
        (one) => one.checkpoint_id === name && one.checkpoint_type === type,
      );
      if (found) return found.tinker_path;
      if (looks === mostLooks)
        throw new InstanceGivenUp(`a save of ${name} was cut off: ${this.record.model} is given up`);
      await service.pause(lookPauseMs, options);
    }
  }

  /** True if the server treats two requests with the same number as one. */
  get isNumbered(): boolean {
    return this.served.numbered;
  }

  /** The optimizer's moments are 0, and no step has been taken: the first step of a training phase begins so. */
  get hasZeroMoments(): boolean {
    return !this.trained && (this.record.path === null || this.record.moments === 'zero');
  }

  private get served(): ServedModel {
    return servedOf(this.spec);
  }
}

/** Waits for both, also if one fails: a request that is still open must not come after the end of its model. */
async function together<A, B>(one: A, other: B): Promise<[Awaited<A>, Awaited<B>]> {
  await Promise.allSettled([one, other]);
  return [await one, await other];
}

/** Log-probs at the places of a check. Leaves no gradients, so that it may be sent twice. */
export async function checkPass(
  service: TinkerService,
  place: { model_id: string; seq_id?: number },
  data: readonly Datum[],
  options: WaitOptions,
): Promise<number[]> {
  const request = { ...place, data, loss_fn: 'cross_entropy', forward_only: true };
  const { outputs } = await service.pass(request, { ...options, repeatable: true });
  return checkedLogprobs(data, outputs);
}
