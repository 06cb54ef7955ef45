// Applies logged batches again on a Tinker server, in a model that no record names, and compares its log-probs with those of the run's
// saved state. Nobody promises bits there (R32), and each request may cost money: the caller asks for the price first.
import type { RequestOptions, WaitOptions } from '../../engine/tinker/futures.js';
import { trainedLogprobs } from '../../engine/tinker/passes.js';
import type { CreatedModel, TinkerService } from '../../engine/tinker/service.js';
import type { Datum } from '../../engine/tinker/wire.js';
import { problemOfLoad } from '../../policy/served/loaded-state.js';
import { InstanceGivenUp } from '../../policy/served/given-up.js';
import { ServedInstance } from '../../policy/served/served-instance.js';
import { chunked, isRescored, servedOf, weightsTolerance } from '../../policy/served/step-requests.js';
import { type LoggedStep, ServedLog } from '../../policy/served/served-log.js';
import {
  boundOf,
  checkedSequences,
  forCheck,
  meanDistance,
  problemOf,
  tellsApart,
} from '../../policy/served/weight-check.js';
import type { RunRecord } from '../../spec/records/run-records.js';
import type { SavedStateRecord } from '../../spec/records/served-model.js';
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

/** Where the bound comes from. `logprob_tolerance` is used if step `to` has no recorded log-probs. */
type ReplayBound = 'moved' | 'weights_tolerance' | 'logprob_tolerance';

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
  /** Bound of `mean`. */
  tolerance: number;
  /** `moved`: the bound is half of the distance that step `to` moved its recorded log-probs; else it is that setting of `model.served`. */
  bound: ReplayBound;
  within: boolean;
  /** `checked`: replayed steps with recorded log-probs; `toldApart`: those of them whose log-probs differ enough from the step before. */
  checked: number;
  toldApart: number;
  /** The first step after which the replayed log-probs differ from the recorded ones. */
  differs: number | null;
  seconds: number;
}

interface ServedReplayDeps {
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
  for (const step of [start, to]) plan.comparedTokens += await tokensOfLoad(log, run, step);
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
    if (isRescored(logged.plan)) plan.comparedTokens += tokens;
  }
  plan.comparedTokens += comparingPasses * tokens;
  return plan;
}

async function tokensOfLoad(log: ServedLog, run: string, step: number): Promise<number> {
  return tokensOf([(await log.checkOf(run, step))?.data ?? []]);
}

/** Why a replay cannot begin before this step: a model gets moments of 0 only when it loads a state. */
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
  const { tolerance, bound } = boundFor(record.spec, last);
  const mean = meanDistance(after, expected.logprobs);
  return {
    ...plan,
    ...{ saved: expected.path, places: after.length, mean, max: furthest(after, expected.logprobs) },
    moved: meanDistance(before, expected.logprobs),
    ...{ tolerance, bound, within: mean <= tolerance && steps.differs === null },
    ...steps,
    seconds: (performance.now() - began) / 1000,
  };
}

function boundFor(spec: RunSpec, { after }: LoggedStep): Pick<ServedReplay, 'tolerance' | 'bound'> {
  const served = servedOf(spec);
  if (!after) return { tolerance: served.logprob_tolerance, bound: 'logprob_tolerance' };
  const least = weightsTolerance(served);
  return {
    tolerance: boundOf(after, least, true),
    bound: tellsApart(after, least) ? 'moved' : 'weights_tolerance',
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
      .apply({ ...batch, before: null, saves: false }, waiting)
      .catch((error: unknown) => failedAt(step, error));
    if (!after) continue;
    steps.checked += 1;
    if (tellsApart(after, tolerance)) steps.toldApart += 1;
    if (problemOf({ ...after, step }, served.check.logprobs, tolerance, true) !== null)
      steps.differs ??= step;
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
  const { name, rank, seed, numbered } = servedOf(record.spec);
  const options: RequestOptions = { ...waiting, repeatable: numbered };
  const loader = { service, log: new ServedLog(store) };
  for (const saved of step === 0 ? [null] : await savedStates(store, record.run, step)) {
    const created = await service.createModel(name, { rank, seed: seed ?? record.spec.seed }, waiting);
    try {
      const problem =
        saved && (await problemOfLoad(loader, record, { model: created.model, saved, optimizer }, options));
      if (problem === null) return await use(created.model, saved?.path ?? null);
      log(`${saved?.path}, a saved state of step ${step}, ${problem}`);
    } finally {
      await end(replay, created);
    }
  }
  throw new BadReplayRange(
    `no saved state of step ${step} loads on this server: ${await otherRange(store, plan, step)}`,
  );
}

/**
 * Ends the model, also after an interruption, so without the signal. Removes its sampler states, because no record names them. A model that
 * cannot be unloaded ends with its session, minutes later.
 */
async function end({ service, waiting, log }: Replay, { model, session }: CreatedModel): Promise<void> {
  const { signal: _signal, ...patient } = waiting;
  await service.unload(model, patient).catch((error: unknown) => {
    log(`${model} is not unloaded, and ends with its session: ${(error as Error).message}`);
  });
  service.release(session);
  try {
    for (const saved of await service.checkpoints(model, patient))
      await service.removeCheckpoint(model, saved);
  } catch (error) {
    log(`what ${model} saved stays on the server: ${(error as Error).message}`);
  }
}

/** At the places that the step trains on, in the batch's order. */
async function logprobsOf(
  { service, waiting, record }: Replay,
  model_id: string,
  step: LoggedStep,
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

function furthest(a: readonly number[], b: readonly number[]): number {
  return a.reduce((most, value, place) => Math.max(most, Math.abs(value - (b[place] ?? NaN))), 0);
}

/** A saved state proves that the step was applied. */
async function batchOf(store: ObjectStore, run: string, step: number): Promise<LoggedStep> {
  const logged = await new ServedLog(store).step(run, step);
  if (logged) return logged;
  throw new BadReplayRange(`step ${step} of ${run} applied nothing: there is no batch to compare with`);
}

function requestsOf(spec: RunSpec, { plan, batch }: LoggedStep): Datum[][] {
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
async function savedStates(store: ObjectStore, run: string, step: number): Promise<SavedStateRecord[]> {
  return (await new ServedLog(store).savedAt(run, step)).reverse();
}

/** The newest step at or before `step` that has a saved state; 0 if there is none. */
async function newestSaved(store: ObjectStore, run: string, step: number): Promise<number> {
  for (let before = step; before > 0; before--)
    if ((await savedStates(store, run, before)).length > 0) return before;
  return 0;
}

async function refuseUnsaved(store: ObjectStore, run: string, to: number): Promise<void> {
  if ((await savedStates(store, run, to)).length > 0) return;
  const last = await lastCommittedStep(store, run);
  let next = to + 1;
  while (next <= last && (await savedStates(store, run, next)).length === 0) next++;
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
