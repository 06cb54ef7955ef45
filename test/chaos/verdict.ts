// What must be equal and sound after a chaos run, from the audits of both stores.
import type { TrialResult } from './trial.js';

/** Every problem in a sentence; none where the killed run became what the undisturbed one did. */
export function problemsOf(calm: TrialResult, killed: TrialResult, kills: number): string[] {
  const problems = [...violations('undisturbed run', calm), ...violations('killed run', killed)];
  if (killed.kills.length < kills)
    problems.push(`only ${killed.kills.length} of ${kills} kills met an open run`);
  if (calm.chain.finalState === null || calm.chain.finalState !== killed.chain.finalState) {
    problems.push(`the final states differ: ${calm.chain.finalState} and ${killed.chain.finalState}`);
  }
  for (const figure of ['steps', 'updatesApplied', 'episodes', 'zeros', 'unknown', 'evaluations'] as const) {
    if (calm.chain[figure] === killed.chain[figure]) continue;
    problems.push(`${figure}: ${calm.chain[figure]} undisturbed, ${killed.chain[figure]} with kills`);
  }
  return problems;
}

function violations(name: string, { chain }: TrialResult): string[] {
  return chain.violations.map(({ rule, key, problem }) => `${name}: ${rule} ${key}: ${problem}`);
}
