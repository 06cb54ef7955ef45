// What must be equal and sound after a chaos run, from the audits of both stores.
import type { ChainAudit } from '../../src/store/chain-audit.js';
import type { TrialResult } from './trial.js';

/** Every problem in a sentence; none where the disturbed run became what the undisturbed one did. `what`: of `planned` ones. */
export function problemsOf(
  calm: Pick<TrialResult<unknown>, 'chain'>,
  disturbed: Pick<TrialResult<unknown>, 'chain' | 'disturbances'>,
  planned: number,
  what = 'kills',
): string[] {
  const problems = [
    ...violations('undisturbed run', calm.chain),
    ...violations('disturbed run', disturbed.chain),
  ];
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

function violations(name: string, { violations }: ChainAudit): string[] {
  return violations.map(({ rule, key, problem }) => `${name}: ${rule} ${key}: ${problem}`);
}
