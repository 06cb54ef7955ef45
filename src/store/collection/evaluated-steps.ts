// Finds and ranks a run's evaluations for its collection: the best steps keep their checkpoints, and whole evaluations are folded.
import type { EvaluationResult } from '../../spec/records/evaluation-records.js';
import type { Digest } from '../../spec/records/parts.js';
import type { RunRecord } from '../../spec/records/run-records.js';
import { specsInForce, stopsAsked, suiteDue } from '../../spec/schedule.js';
import { inParallel } from '../../base/in-parallel.js';
import { isSuiteOf } from '../evaluations/suite-comparability.js';
import { evaluationResultKey, evaluationsOfState, evaluationSuiteKey } from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';
import { readRecord } from '../records/records.js';
import { unreadable } from '../runs/checkpoints.js';
import { readControl } from '../runs/control-records.js';
import { openRunView } from '../runs/quarantine.js';
import { lastCommittedStep, readRun, readState } from '../runs/run-records.js';

export interface EvaluationOfStep {
  step: number;
  state: Digest;
  suite: Digest;
}

export interface FoundEvaluation extends EvaluationOfStep {
  /** Null if the evaluation is unfinished, was set aside (R24), or cannot be read. */
  result: EvaluationResult | null;
  /** Why the result or the suite cannot be read, or null. */
  problem: string | null;
  /** True if the run makes this evaluation at its intervals, or if that is not known. Only such an evaluation ranks its step. */
  ranks: boolean;
}

export interface RankedSteps {
  /** Ranked steps, best first. */
  best: number[];
  /** Steps with an evaluation that has no result and so no rank. */
  unranked: number[];
}

/**
 * Evaluations, by any run, of the run's states: at the steps where an evaluation was due and at the last step. Runs share states, so one
 * result that is damaged or has a newer schema concerns many runs: it does not throw, but is named in `problem`.
 */
export async function findEvaluations(store: ObjectStore, run: string): Promise<FoundEvaluation[]> {
  const view = await openRunView(store, run);
  const record = await readRun(view, run);
  const last = await lastCommittedStep(view, run);
  const control = await readControl(view, run);
  const specs = specsInForce(record.spec, control);
  const ends = [last, ...stopsAsked(control)];
  const due = Array.from({ length: last + 1 }, (_, step) => step).filter(
    (step) => ends.includes(step) || specs.some((spec) => suiteDue(spec, step) !== null),
  );
  const found = await inParallel(due, async (step): Promise<EvaluationOfStep[]> => {
    const state = await readState(view, run, step);
    const names = await view.listFolder(evaluationsOfState(state));
    return names.map((name) => ({ step, state, suite: name.replace(/\/$/, '') }));
  });
  return inParallel(found.flat(), (one) => readEvaluation(view, record, one));
}

async function readEvaluation(
  view: ObjectStore,
  record: RunRecord,
  one: EvaluationOfStep,
): Promise<FoundEvaluation> {
  const read = readRecord(view, evaluationResultKey(one.state, one.suite), 'evaluation');
  const [result, ranks] = [
    await read.catch(unreadable),
    // Even if the result cannot be read, the suite may show that the run did not ask for the evaluation.
    await isOfIntervals(view, record, one).catch(unreadable),
  ];
  const problem = [result, ranks].find((answer) => typeof answer === 'string') ?? null;
  return {
    ...one,
    result: typeof result === 'string' || problem !== null ? null : result,
    problem,
    ranks: ranks !== false,
  };
}

async function isOfIntervals(
  view: ObjectStore,
  record: RunRecord,
  { state, suite }: EvaluationOfStep,
): Promise<boolean> {
  const name = (await readRecord(view, evaluationSuiteKey(state, suite), 'suite'))?.name;
  return name === 'interval' && isSuiteOf(view, record, { state, suite, suite_name: name });
}

/**
 * Ranks steps by pass rate on the suite with most evaluated states: pass rates on different tasks cannot be compared. Of two equal steps,
 * the newer one is first, as it has learned longer. An evaluation without a result has no rank: it may be the best of all, and its
 * checkpoint must still exist when the unreadable record is restored.
 */
export function rankSteps(evaluations: readonly FoundEvaluation[]): RankedSteps {
  const bySuite = new Map<string, FoundEvaluation[]>();
  const ranked = evaluations.filter(({ ranks, result }) => ranks && (!result || result.pass_at_1 !== null));
  for (const one of ranked) bySuite.set(one.suite, [...(bySuite.get(one.suite) ?? []), one]);
  const [most = []] = [...bySuite.values()].sort((a, b) => b.length - a.length);
  const best = most
    .flatMap(({ step, result }) => (result ? [{ step, rate: result.pass_at_1 ?? 0 }] : []))
    .sort((a, b) => b.rate - a.rate || b.step - a.step);
  const unranked = ranked.filter(({ result }) => !result);
  return {
    best: best.map(({ step }) => step),
    // Steps that share a state need only one checkpoint: the newest step's, because that step is nearest to later steps.
    unranked: [...new Map(unranked.map(({ state, step }) => [state, step])).values()],
  };
}

/**
 * Returns each evaluation once: steps that applied nothing share a state, and so share its evaluations. `whole`: evaluations without
 * unknown outcomes, so that no later round will play their tasks again. `unread`: unreadable evaluations; their episodes stay in single
 * files.
 */
export function sortEvaluations(evaluations: readonly FoundEvaluation[]): {
  whole: EvaluationOfStep[];
  unread: { step: number; problem: string }[];
} {
  const byName = new Map<string, FoundEvaluation>();
  for (const one of evaluations) if (!byName.has(nameOf(one))) byName.set(nameOf(one), one);
  const once = [...byName.values()];
  return {
    whole: once
      .filter(({ result }) => result?.unknown === 0)
      .map(({ step, state, suite }) => ({ step, state, suite })),
    unread: once.flatMap(({ step, problem }) => (problem === null ? [] : [{ step, problem }])),
  };
}

export function nameOf({ state, suite }: Pick<EvaluationOfStep, 'state' | 'suite'>): string {
  return `${state}/${suite}`;
}
