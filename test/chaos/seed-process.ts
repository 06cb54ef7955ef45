// Runs one seed in a separate process, because faults are configured by environment variables of the process.
import { spawn } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Calm, CampaignRun } from './campaign.js';

export interface SeedProcess {
  /** The same flags as the campaign's. */
  flags: readonly string[];
  signal: AbortSignal;
  /** Called when the process reports that it needs no processor any more. */
  onlyWaits(): void;
  /** Receives the whole output of the process when it has ended. */
  log(message: string): void;
}

/** Tells the campaign, from the process of one seed, that it now only waits. */
export function sayThatItOnlyWaits(): void {
  process.send?.(onlyWaitsMessage);
}

const onlyWaitsMessage = 'only waits';

export async function runInProcess(
  seed: number,
  calm: Calm,
  { flags, signal, onlyWaits, log }: SeedProcess,
): Promise<CampaignRun> {
  const folder = await mkdtemp(join(tmpdir(), 'longhaul-chaos-seed-'));
  const [against, outcome] = [join(folder, 'calm.json'), join(folder, 'outcome.json')];
  const begun = performance.now();
  try {
    await writeFile(against, JSON.stringify(calm));
    const main = fileURLToPath(new URL('./main.js', import.meta.url));
    const own = ['--runs', '1', '--seed', String(seed), '--against', against, '--outcome', outcome];
    const said = await outputOf([main, ...own, ...flags], signal, onlyWaits);
    log(said.trimEnd());
    return JSON.parse(await readFile(outcome, 'utf8')) as CampaignRun;
  } catch (error) {
    const problem = `the run of seed ${seed} gave no outcome: ${(error as Error).message}`;
    return { seed, problems: [problem], disturbances: [], seconds: (performance.now() - begun) / 1000 };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Aborting `signal` sends SIGTERM: the process then stops its stack and ends. */
async function outputOf(
  args: readonly string[],
  signal: AbortSignal,
  onlyWaits: () => void,
): Promise<string> {
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit', 'ipc'], signal });
  child.on('message', (message) => {
    if (message === onlyWaitsMessage) onlyWaits();
  });
  // An error is ignored, because 'close' follows in any case and is awaited.
  child.on('error', () => undefined);
  let said = '';
  child.stdout?.setEncoding('utf8').on('data', (piece: string) => (said += piece));
  await new Promise<void>((resolve) => child.once('close', () => resolve()));
  return said;
}
