// Judges the result of a schedule: each batch must be once in the weights, or the run must be blocked and say why. Anything else is wrong.
import { AuditReport } from '../../../../src/store/audit/audit-report.js';
import { checkServed } from '../../../../src/store/audit/served-audit.js';
import { lastCommittedStep } from '../../../../src/store/runs/run-records.js';
import { readSavedStates } from '../../../../src/store/runs/served-models.js';
import { type Adapters, areEqual, logprobOf } from './adapters.js';
import { type MemoryStore, viewOf } from './memory-store.js';
import type { Script, ScriptedRun } from './script.js';
import { pathOf, type SimulatedServer } from './server.js';

/**
 * `spoiled`: wrong because a model trained on gradients of an earlier model in its slot. The server ended that model between the clearing of the
 * slot and the creation of the next model, which no client can notice (docs/tinker.md).
 */
export type VerdictKind = 'right' | 'blocked' | 'wrong' | 'spoiled';

export interface Verdict {
  kind: VerdictKind;
  /** Why it is blocked or wrong. */
  reasons: string[];
  /** Samples of a state that came from other weights; they do not change the weights. */
  wrongSamples: string[];
  operations: number;
}

/** The model with which a process would go on after the last state of a run. */
export interface Inspected {
  run: ScriptedRun;
  step: number;
  model: string | null;
  held: Adapters | null;
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
  /** True if the run neither finished nor was blocked. */
  isStuck: boolean;
  nameOf: (adapters: Adapters) => string;
}

export async function verdictOn(ending: Ending): Promise<Verdict> {
  const { wrongSamples, operations, failure, isStuck } = ending;
  const reasons: string[] = [];
  for (const run of ending.script.runs) reasons.push(...(await problemsOf(ending, run)));
  for (const one of ending.inspected) reasons.push(...problemOf(ending, one));
  if (isStuck) reasons.push('it goes on for ever');
  // Blocked or not: what a later run would load must be right.
  const isSpoiled = ending.server.trainedOnLeft.length > 0;
  if (reasons.length > 0) return { kind: isSpoiled ? 'spoiled' : 'wrong', reasons, wrongSamples, operations };
  if (!failure) return { kind: 'right', reasons, wrongSamples, operations };
  const blocked = [`${failure.name}: ${failure.message}`];
  return { kind: 'blocked', reasons: blocked, wrongSamples, operations };
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
      const { movement } = script.options;
      // Weights with other log-probs are found when they are loaded (R37).
      if (
        held &&
        !areEqual(held, states[step]!.adapters) &&
        !isNoticed(held, states[step]!.adapters, movement)
      )
        problems.push(`${saved.path}, the saved state of step ${step} of ${run}, holds ${nameOf(held)}`);
    }
  const last = await lastCommittedStep(store, run);
  const report = new AuditReport(run);
  await checkServed({ store, record: scripted.record, report }, last);
  problems.push(...report.violations.map(({ key, problem }) => `the audit says of ${key}: ${problem}`));
  if (failure) return problems;
  if (last !== script.options.steps) problems.push(`${run} ended with step ${last}, and nobody said why`);
  return problems;
}

function problemOf({ nameOf }: Ending, { run, step, model, held }: Inspected): string[] {
  if (held && areEqual(held, run.states[step]!.adapters)) return [];
  return [`${model}, the model of ${run.run}, holds ${held ? nameOf(held) : 'nothing'} after step ${step}`];
}

const pairs = Array.from({ length: 16 }, (_, at) => [(5 * at) % 13, (7 * at + 3) % 11] as const);

function isNoticed(held: Adapters, expected: Adapters, movement: number): boolean {
  const apart = pairs.map((pair) =>
    Math.abs(logprobOf(held, pair, movement) - logprobOf(expected, pair, movement)),
  );
  return apart.reduce((sum, one) => sum + one, 0) / pairs.length > movement / 2;
}
