// Compares a chaos run with the undisturbed one, by the audits of both stores and both histories.
import type { TrialResult } from '../trial.js';

type Trial = Pick<
  TrialResult<unknown>,
  'chain' | 'history' | 'secretsIn' | 'wrongBatches' | 'leakedSessions'
>;

/**
 * Every problem as a sentence; empty if the disturbed run is equal to the undisturbed one. `what`: the word for the `planned` disturbances.
 */
export function problemsOf(
  calm: Trial,
  disturbed: Trial & Pick<TrialResult<unknown>, 'disturbances'>,
  planned: number,
  what = 'kills',
): string[] {
  const problems = [...violations('undisturbed run', calm), ...violations('disturbed run', disturbed)];
  const met = disturbed.disturbances.length;
  if (met < planned) problems.push(`only ${met} of ${planned} ${what} met an open run`);
  if (calm.chain.finalState === null || calm.chain.finalState !== disturbed.chain.finalState) {
    problems.push(`the final states differ: ${calm.chain.finalState} and ${disturbed.chain.finalState}`);
  }
  for (const figure of ['steps', 'updatesApplied', 'episodes', 'zeros', 'unknown', 'evaluations'] as const) {
    if (calm.chain[figure] === disturbed.chain[figure]) continue;
    problems.push(`${figure}: ${calm.chain[figure]} undisturbed, ${disturbed.chain[figure]} with ${what}`);
  }
  return problems;
}

function violations(
  name: string,
  { chain, history, secretsIn, wrongBatches, leakedSessions }: Trial,
): string[] {
  return [
    ...chain.violations.map(({ rule, key, problem }) => `${rule} ${key}: ${problem}`),
    ...history.violations.map(({ rule, at, problem }) => `${rule} ${at}: ${problem}`),
    ...(history.events === 0 ? ['the server knows no history of it'] : []),
    ...wrongBatches,
    ...secretsIn.map((place) => `a secret is in ${place}`),
    ...(leakedSessions > 0 ? [`${leakedSessions} sessions of the environment server were leaked`] : []),
  ].map((problem) => `${name}: ${problem}`);
}
