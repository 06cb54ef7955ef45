// The evaluated steps of a run, best first: whose checkpoints a collection keeps longest.
import type { EvaluationFigure } from './evaluations.js';
import { specsInForce, stopsAsked, suiteDue } from '../../spec/schedule.js';
import type { EvaluationOfStep } from '../../store/collection/collection.js';
import { readControl } from '../../store/runs/control-records.js';
import { inParallel } from '../../base/in-parallel.js';
import { evaluationResultKey, evaluationsOfState } from '../../store/objects/layout.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { isSuiteOf } from '../../store/evaluations/suite-comparability.js';
import { readRecord } from '../../store/records/records.js';
import { lastCommittedStep, readRun, readState } from '../../store/runs/run-records.js';

/** What a collection of the run asks. Reads what lies at the steps that were to be evaluated, and at the last one, and no other step. */
export function evaluatedSteps(
  store: ObjectStore,
  run: string,
): { bestSteps: () => Promise<number[]>; evaluations: () => Promise<EvaluationOfStep[]> } {
  return {
    bestSteps: async () => {
      const record = await readRun(store, run);
      const interval = (await figuresOf(store, run)).filter(({ result }) => result.suite_name === 'interval');
      const own = await inParallel(interval, ({ result }) => isSuiteOf(store, record, result));
      return bestStepsOf(interval.filter((_, index) => own[index]));
    },
    evaluations: async () => {
      const whole = (await figuresOf(store, run)).filter(({ result }) => result.unknown === 0);
      // Steps that change nothing share a state, and so its evaluation.
      const evaluations = new Map<string, EvaluationOfStep>();
      for (const { step, result } of whole) {
        const { state, suite } = result;
        const name = `${state}/${suite}`;
        if (!evaluations.has(name)) evaluations.set(name, { step, state, suite });
      }
      return [...evaluations.values()];
    },
  };
}

/** Evaluations of a run, whichever run played them: states are shared. */
async function figuresOf(store: ObjectStore, run: string): Promise<EvaluationFigure[]> {
  const record = await readRun(store, run);
  const last = await lastCommittedStep(store, run);
  const control = await readControl(store, run);
  const specs = specsInForce(record.spec, control);
  const ends = [last, ...stopsAsked(control)];
  const due = Array.from({ length: last + 1 }, (_, step) => step).filter(
    (step) => ends.includes(step) || specs.some((spec) => suiteDue(spec, step) !== null),
  );
  const figures = await inParallel(due, async (step): Promise<EvaluationFigure[]> => {
    const state = await readState(store, run, step);
    const suites = await store.listFolder(evaluationsOfState(state));
    const found: EvaluationFigure[] = [];
    for (const name of suites) {
      const key = evaluationResultKey(state, name.replace(/\/$/, ''));
      const result = await readRecord(store, key, 'evaluation');
      if (result) found.push({ step, result });
    }
    return found;
  });
  return figures.flat();
}

/**
 * Shares of different tasks say nothing of each other, so only the suite counts that most states were evaluated on. Of equals the
 * newer one is first: it has learned longer.
 */
export function bestStepsOf(evaluations: readonly EvaluationFigure[]): number[] {
  const bySuite = new Map<string, EvaluationFigure[]>();
  for (const one of evaluations.filter(({ result }) => result.pass_at_1 !== null))
    bySuite.set(one.result.suite, [...(bySuite.get(one.result.suite) ?? []), one]);
  const [most = []] = [...bySuite.values()].sort((a, b) => b.length - a.length);
  return most
    .sort((a, b) => (b.result.pass_at_1 ?? 0) - (a.result.pass_at_1 ?? 0) || b.step - a.step)
    .map(({ step }) => step);
}
