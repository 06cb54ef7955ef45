// Runs `npm run chaos` with a few SIGKILLs, as a user would. Compares the digest at its end with an undisturbed run's.
import { join } from 'node:path';
import type { Measured } from '../figures/figure.js';
import { repository, runCommand } from '../repository.js';

export const chaosKills = [1, 5, 20] as const;

const deadlineMs = 25 * 60_000;

export async function measureChaos(kills: number): Promise<Measured> {
  const main = join(repository, 'dist/dev/test/chaos/main.js');
  const args = [main, '--kills', String(kills), '--seed', '1', '--json'];
  const begun = performance.now();
  const { code, output } = await runCommand(process.execPath, args, deadlineMs);
  const verdict = output.trim().split('\n').at(-1) ?? '';
  if (code !== 0 && !verdict.startsWith('NOT equal'))
    throw new Error(`chaos with ${kills} kills ended with ${code}: ${verdict}`);
  return {
    values: { equal: code === 0 ? 1 : 0, seconds: (performance.now() - begun) / 1_000 },
    notes: [verdict],
  };
}
