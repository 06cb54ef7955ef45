// What came of a schedule: each batch once in the weights, or a run that is blocked and says why. Anything else is wrong.
import { lastCommittedStep } from '../../../../src/store/runs/run-records.js';
import { readSavedStates } from '../../../../src/store/runs/served-models.js';
import { type Adapters, areEqual } from './adapters.js';
import { type MemoryStore, viewOf } from './memory-store.js';
import type { Script, ScriptedRun } from './script.js';
import { pathOf, type SimulatedServer } from './server.js';

export interface Verdict {
  kind: 'right' | 'blocked' | 'wrong';
  /** Why it is blocked or wrong. */
  reasons: string[];
  /** Samples of a state that came from other weights. They train nothing by themselves. */
  wrongSamples: string[];
  operations: number;
}

/** A model from which a process samples the last state of a run. */
export interface Inspected {
  run: ScriptedRun;
  step: number;
  model: string | null;
}

export interface Ending {
  inspected: Inspected[];
  memory: MemoryStore;
  server: SimulatedServer;
  script: Script;
  wrongSamples: string[];
  operations: number;
  /** Why the run could not be finished; null if it was. */
  failure: Error | null;
  /** It ended neither way. */
  isStuck: boolean;
  nameOf: (adapters: Adapters) => string;
}

export async function verdictOn(ending: Ending): Promise<Verdict> {
  const { wrongSamples, operations, failure, isStuck } = ending;
  const reasons: string[] = [];
  for (const run of ending.script.runs) reasons.push(...(await problemsOf(ending, run)));
  for (const one of ending.inspected) reasons.push(...problemOf(ending, one));
  if (isStuck) reasons.push('it goes on for ever');
  // A person looks at a run that is blocked, so what is wrong in it is not silent.
  else if (failure)
    return {
      kind: 'blocked',
      reasons: [`${failure.name}: ${failure.message}`, ...reasons],
      ...{ wrongSamples, operations },
    };
  if (reasons.length > 0) return { kind: 'wrong', reasons, wrongSamples, operations };
  return { kind: 'right', reasons, wrongSamples, operations };
}

async function problemsOf(
  { memory, server, script, failure, nameOf }: Ending,
  scripted: ScriptedRun,
): Promise<string[]> {
  const { run, states } = scripted;
  const store = viewOf(memory, (_, act) => Promise.resolve(act()));
  const problems: string[] = [];
  const saves = [...server.saves.values()];
  for (let step = 1; step <= script.options.steps; step++)
    for (const saved of await readSavedStates(store, run, step)) {
      const held = saves.find((save) => pathOf(save) === saved.path)?.adapters;
      if (held && !areEqual(held, states[step]!.adapters))
        problems.push(`${saved.path}, the saved state of step ${step} of ${run}, holds ${nameOf(held)}`);
    }
  if (failure) return problems;
  const last = await lastCommittedStep(store, run);
  if (last !== script.options.steps) problems.push(`${run} ended with step ${last}, and nobody said why`);
  return problems;
}

/** A model that is only sampled from needs no moments. */
function problemOf({ server, nameOf }: Ending, { run, step, model }: Inspected): string[] {
  const held = server.models.get(model ?? '')?.adapters;
  const { weights } = run.states[step]!.adapters;
  if (held && weights.every((weight, at) => weight === held.weights[at])) return [];
  const found = held ? nameOf(held) : 'nothing';
  return [`${model}, the model of ${run.run}, holds ${found} after step ${step}`];
}
