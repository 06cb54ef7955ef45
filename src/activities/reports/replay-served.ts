// Applies logged batches again on a Tinker server, in a model that no record names, and compares its log-probs with those of the run's
// saved state. Nobody promises bits there (R32), and each request may cost money: the caller asks for the price first.
import { ModelLost, TinkerRefused } from '../../engine/tinker/call-errors.js';
import type { RequestOptions, WaitOptions } from '../../engine/tinker/futures.js';
import { trainedLogprobs } from '../../engine/tinker/passes.js';
import type { CreatedModel, TinkerService } from '../../engine/tinker/service.js';
import type { Datum } from '../../engine/tinker/wire.js';
import {
  chunked,
  InstanceGivenUp,
  ServedInstance,
  type StepToApply,
  weightsTolerance,
} from '../../policy/served/served-instance.js';
import { servedOf } from '../../policy/served/served-instances.js';
import { ServedLog } from '../../policy/served/served-log.js';
import {
  checkedSequences,
  compared,
  forCheck,
  isSame,
  tellsApart,
} from '../../policy/served/weight-check.js';
import type { RunRecord } from '../../spec/records/run-records.js';
import type { RunSpec } from '../../spec/run-spec.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { openRunView } from '../../store/runs/quarantine.js';
import { lastCommittedStep, readRun, readState } from '../../store/runs/run-records.js';
import { BadReplayRange, refuseUncommitted, type ReplayRange } from './replay-audit.js';

/** What a replay would send to the server. */
export interface ServedReplayPlan extends ReplayRange {
  run: string;
  /** The step whose saved state it loads, the newest one before `from`; 0: it begins with fresh adapters. */
  start: number;
  /** The saved state is loaded without the optimizer's moments: the first update begins a training phase. */
  zeroMoments: boolean;
  /** Updates that are applied again. */
  updates: number;
  /** Tokens of their requests. */
  trainedTokens: number;
  /** Tokens of the passes that compare log-probs, and train nothing. */
  comparedTokens: number;
}

export interface ServedReplay extends ServedReplayPlan {
  /** Saved state of step `to`, as the server names it. */
  saved: string;
  /** Places at which log-probs are compared: what step `to` trains on. */
  places: number;
  /** Distance of the replayed model's log-probs from those of the saved state. */
  mean: number;
  max: number;
  /** Mean distance of the log-probs before the replay from those of the saved state: what the replayed updates have changed. */
  moved: number;
  /**
   * Bound of `mean`: half of what step `to` moved the log-probs that were recorded with it; the run's `model.served.logprob_tolerance` where
   * an earlier version recorded none.
   */
  tolerance: number;
  within: boolean;
  /** Replayed steps whose log-probs were recorded, and those among them that moved them enough to be told from the step before. */
  checked: number;
  toldApart: number;
  /** The first step after which the replayed weights are not those that were recorded. */
  differs: number | null;
  seconds: number;
}

export interface ServedReplayDeps {
  store: ObjectStore;
  service: TinkerService;
  waiting: WaitOptions;
  /** Receives what is being done, in words. */
  at: (place: string) => void;
  log: (message: string) => void;
}

/** Passes over the last batch: by the saved state, by the state before the replay, and by the replayed one. */
const comparingPasses = 3;

/** Throws `BadReplayRange` if step `to` is not committed, or has no saved state to compare with. */
export async function planServedReplay(
  plainStore: ObjectStore,
  run: string,
  { from, to }: ReplayRange,
): Promise<ServedReplayPlan> {
  const store = await openRunView(plainStore, run);
  const record = await readRun(store, run);
  await refuseUncommitted(store, run, to);
  await refuseUnsaved(store, run, to);
  const start = await newestSaved(store, run, from - 1);
  const plan = { run, from, to, start, zeroMoments: false, updates: 0, trainedTokens: 0, comparedTokens: 0 };
  const log = new ServedLog(store);
  let tokens = 0;
  for (let step = start + 1; step <= to; step++) {
    const logged = await log.step(run, step);
    if (!logged) continue;
    if (logged.plan.optimizer.reset_moments) {
      if (plan.updates > 0) throw new BadReplayRange(phaseText(run, step));
      plan.zeroMoments = true;
    }
    tokens = tokensOf(requestsOf(record.spec, logged));
    plan.updates += 1;
    plan.comparedTokens += tokensOf([
      checkedSequences(chunked(record.spec, logged.plan, logged.batch)[0] ?? []),
    ]);
    plan.trainedTokens += tokens;
    if (logged.plan.loss.tis_cap !== undefined) plan.comparedTokens += tokens;
  }
  plan.comparedTokens += comparingPasses * tokens;
  return plan;
}

/** A model gets moments of 0 only when it loads a state. */
function phaseText(run: string, step: number): string {
  return (
    `a training phase of ${run} begins with step ${step}, and its moments with it: replay steps before it, ` +
    `or steps after a saved state of step ${step - 1} or later`
  );
}

/**
 * Replays what `plan` says. Its models are ended in any case. Throws `BadReplayRange` if a saved state does not load: an older one would
 * cost more than the plan says.
 */
export async function replayServed(deps: ServedReplayDeps, plan: ServedReplayPlan): Promise<ServedReplay> {
  const began = performance.now();
  const { run, start, to } = plan;
  const store = await openRunView(deps.store, run);
  const record = await readRun(store, run);
  await refuseOtherServer(deps, record);
  const last = await batchOf(store, run, to);
  const replay = { ...deps, store, record };
  const beginning = { step: start, optimizer: !plan.zeroMoments };
  deps.at(`the saved state of step ${to}`);
  const expected = await withState(replay, plan, { step: to }, async (model, path) => ({
    // Step `to` is not 0.
    path: path as string,
    logprobs: await logprobsOf(replay, model, last),
  }));
  const { before, after, ...steps } = await withState(replay, plan, beginning, async (model, path) => {
    const before = await logprobsOf(replay, model, last);
    const steps = await applyAgain(replay, plan, { model, path });
    return { before, after: await logprobsOf(replay, model, last), ...steps };
  });
  const served = servedOf(record.spec);
  const tolerance = last.after
    ? Math.max(last.after.moved / 2, weightsTolerance(served))
    : served.logprob_tolerance;
  const { mean, max } = distance(after, expected.logprobs);
  return {
    ...plan,
    ...{ saved: expected.path, places: after.length, mean, max, tolerance },
    moved: distance(before, expected.logprobs).mean,
    within: mean <= tolerance && steps.differs === null,
    ...steps,
    seconds: (performance.now() - began) / 1000,
  };
}

type Replay = ServedReplayDeps & { record: RunRecord };

type ReplayedSteps = Pick<ServedReplay, 'checked' | 'toldApart' | 'differs'>;

/** Applies the steps after `start` to a model that holds the state of `start`; `path`: what it loaded. */
async function applyAgain(
  { store, service, waiting, at, record }: Replay,
  { run, start, to }: ServedReplayPlan,
  { model, path }: { model: string; path: string | null },
): Promise<ReplayedSteps> {
  const instance = new ServedInstance(
    {
      ...{ schema: 'longhaul.instance/2', n: 1, run, model, step: start, path },
      ...{ purpose: 'evaluate', node: 'audit' },
      observed: { at: new Date().toISOString(), by: 'audit' },
    },
    record.spec,
    service,
    { step: start, state: await readState(store, run, start) },
    path === null ? 1 : 2,
  );
  const log = new ServedLog(store);
  const tolerance = weightsTolerance(servedOf(record.spec));
  const steps: ReplayedSteps = { checked: 0, toldApart: 0, differs: null };
  for (let step = start + 1; step <= to; step++) {
    const logged = await log.step(run, step);
    at(`step ${step} of ${to}`);
    if (!logged) {
      instance.skip({ step, state: await readState(store, run, step) });
      continue;
    }
    const { after, ...batch } = logged;
    const { served } = await instance
      .apply({ ...batch, before: null }, waiting)
      .catch((error: unknown) => failedAt(step, error));
    if (!after) continue;
    steps.checked += 1;
    if (tellsApart(after, tolerance)) steps.toldApart += 1;
    if (!isSame(compared(after, served.check.logprobs, tolerance, true))) steps.differs ??= step;
  }
  return steps;
}

function failedAt(step: number, error: unknown): never {
  if (!(error instanceof InstanceGivenUp)) throw error;
  throw new InstanceGivenUp(`the replay differs before the update of step ${step}: ${error.message}`);
}

/** Lends a model that holds the saved state of `step`, or fresh adapters for step 0, and ends it. `optimizer`: with its moments. */
async function withState<T>(
  replay: Replay,
  plan: ServedReplayPlan,
  { step, optimizer = true }: { step: number; optimizer?: boolean },
  use: (model: string, path: string | null) => Promise<T>,
): Promise<T> {
  const { store, service, waiting, log, record } = replay;
  const { name, rank, seed } = servedOf(record.spec);
  for (const path of step === 0 ? [null] : await savedPaths(store, record.run, step)) {
    const created = await service.createModel(name, { rank, seed: seed ?? record.spec.seed }, waiting);
    try {
      if (path === null || (await loads(replay, created.model, { path, optimizer })))
        return await use(created.model, path);
      log(`${path}, a saved state of step ${step}, does not load`);
    } finally {
      await end(replay, created);
    }
  }
  throw new BadReplayRange(
    `no saved state of step ${step} loads on this server: ${await otherRange(store, plan, step)}`,
  );
}

/** False if the saved state is gone. */
async function loads(
  { service, waiting, record }: Replay,
  model: string,
  { path, optimizer }: { path: string; optimizer: boolean },
): Promise<boolean> {
  const options: RequestOptions = { ...waiting, repeatable: servedOf(record.spec).numbered };
  try {
    await service.loadWeights({ model_id: model, seq_id: 1 }, path, { ...options, optimizer });
    return true;
  } catch (error) {
    waiting.signal?.throwIfAborted();
    if (error instanceof TinkerRefused || error instanceof ModelLost) return false;
    throw error;
  }
}

/** Also after an interruption, so without its signal. What is left ends with its session, minutes later. */
async function end({ service, waiting, log }: Replay, { model, session }: CreatedModel): Promise<void> {
  const { signal: _signal, ...patient } = waiting;
  await service.unload(model, patient).catch((error: unknown) => {
    log(`${model} is not unloaded, and ends with its session: ${(error as Error).message}`);
  });
  service.release(session);
}

/** At the places that the step trains on, in the batch's order. */
async function logprobsOf(
  { service, waiting, record }: Replay,
  model_id: string,
  step: StepToApply,
): Promise<number[]> {
  const logprobs: number[] = [];
  for (const chunk of requestsOf(record.spec, step)) {
    const data = forCheck(chunk);
    const { outputs } = await service.pass(
      { model_id, data, loss_fn: 'cross_entropy', forward_only: true },
      { ...waiting, repeatable: true },
    );
    logprobs.push(...trainedLogprobs(data, outputs));
  }
  return logprobs;
}

function distance(a: readonly number[], b: readonly number[]): { mean: number; max: number } {
  const apart = a.map((value, place) => Math.abs(value - (b[place] ?? NaN)));
  const sum = apart.reduce((total, one) => total + one, 0);
  return { mean: sum / apart.length, max: apart.reduce((most, one) => Math.max(most, one), 0) };
}

/** A saved state proves that the step was applied. */
async function batchOf(store: ObjectStore, run: string, step: number): Promise<StepToApply> {
  const logged = await new ServedLog(store).step(run, step);
  if (logged) return logged;
  throw new BadReplayRange(`step ${step} of ${run} applied nothing: there is no batch to compare with`);
}

function requestsOf(spec: RunSpec, { plan, batch }: StepToApply): Datum[][] {
  return chunked(spec, plan, batch).flat();
}

function tokensOf(requests: readonly Datum[][]): number {
  return requests.flat().reduce((sum, { tokens }) => sum + tokens.length, 0);
}

async function refuseOtherServer({ service, waiting }: ServedReplayDeps, record: RunRecord): Promise<void> {
  const { name } = servedOf(record.spec);
  const models = await service.models(waiting);
  if (!models.includes(name))
    throw new Error(
      `the Tinker server does not have ${name}, which ${record.run} trains; it has ${models.join(', ') || 'no model'}`,
    );
}

/** Newest first. */
async function savedPaths(store: ObjectStore, run: string, step: number): Promise<string[]> {
  const saved = await new ServedLog(store).savedAt(run, step);
  return saved.map(({ path }) => path).reverse();
}

/** The newest step at or before `step` that has a saved state; 0 if there is none. */
async function newestSaved(store: ObjectStore, run: string, step: number): Promise<number> {
  for (let before = step; before > 0; before--)
    if ((await savedPaths(store, run, before)).length > 0) return before;
  return 0;
}

async function refuseUnsaved(store: ObjectStore, run: string, to: number): Promise<void> {
  if ((await savedPaths(store, run, to)).length > 0) return;
  const last = await lastCommittedStep(store, run);
  let next = to + 1;
  while (next <= last && (await savedPaths(store, run, next)).length === 0) next++;
  throw new BadReplayRange(
    `step ${to} of ${run} has no saved state to compare with: ` +
      (next <= last
        ? `replay up to step ${next}, the next one that has one`
        : await otherRange(store, { run, start: 0, to }, to)),
  );
}

/** The range to ask for where saved state `step`, the plan's first or last one, is missing. */
async function otherRange(
  store: ObjectStore,
  { run, start, to }: Pick<ServedReplayPlan, 'run' | 'start' | 'to'>,
  step: number,
): Promise<string> {
  const older = await newestSaved(store, run, step - 1);
  if (step === start)
    return `replay ${older + 1}..${to}, which begins with ${older === 0 ? 'fresh adapters' : `that of step ${older}`}`;
  return older === 0 ? 'no step before it has one' : `replay up to step ${older}, the newest before it`;
}
