// `longhaul status RUN`: where a run is and its last figures; with --watch, as it goes.
import type { Command } from 'commander';
import type { RunStatus } from '../activities/contracts.js';
import { budgetNotes } from '../workflows/budget.js';
import { faultNote } from '../workflows/fault-note.js';
import { settingNotes } from '../workflows/hyperparameters.js';
import { statusQuery } from '../workflows/messages.js';
import { stopNote } from '../workflows/run-text.js';
import { followRun, progressLine } from './live-view.js';
import { percent } from '../report/format.js';
import { inFolder, withOutput } from './output.js';
import { explained } from './explained.js';
import { runHandle, type TemporalFlags, withClient, withTemporalFlags } from './temporal-access.js';
import { type Waiting, waitingFor, waitingLine } from './waiting.js';

export function register(program: Command): void {
  withTemporalFlags(
    program.command('status').argument('<run>', 'name of the run').description('show where a run is'),
  )
    .option('--watch', 'follow it until it ends')
    .option('--json', 'print the status as JSON')
    .action(
      withOutput(async (run: string, flags: TemporalFlags & { watch?: boolean; json?: boolean }) => {
        await withClient(flags, async (client) => {
          const handle = runHandle(client, run);
          const status = await explained(
            handle,
            client.withDeadline(Date.now() + 10_000, () => handle.query(statusQuery)),
          );
          const waiting = await waitingFor(client, handle);
          console.log(flags.json ? JSON.stringify({ ...status, waiting }) : describe(status, waiting, flags));
          if (!flags.watch || status.phase === 'completed' || status.phase === 'stopped') return;
          const result = await followRun(client, handle, { output: process.stderr });
          console.log(
            flags.json ? JSON.stringify(result) : `${run} has ended (${result.ended}) at step ${result.step}`,
          );
        });
      }),
    );
}

function describe(status: RunStatus, waiting: readonly Waiting[], flags: TemporalFlags): string {
  const lines = [
    `${status.run} · ${progressLine(status)}`,
    `  node ${[status.node ?? 'none', ...status.sharingNodes].join(', ')} · owner ${status.owner} · last checkpoint ${status.lastCheckpoint ?? 'none yet'}`,
  ];
  if (status.lineage) lines.push(`  goes on from ${status.lineage.run} after step ${status.lineage.step}`);
  if (status.waitsFor !== null) lines.push(`  waits for a node: ${status.waitsFor}`);
  for (const one of waiting) lines.push(`  ${waitingLine(one)}`);
  const faults = faultNote(status.faults ?? {});
  if (faults) lines.push(`  ${faults}`);
  lines.push(...budgetNotes(status.budget ?? []).map((note) => `  ${note}`));
  lines.push(...settingNotes(status.control).map((note) => `  ${note}`));
  const stop = stopNote(status);
  if (stop) lines.push(`  ${stop}`);
  for (const { step, suite, pass_at_1, graded } of status.evaluations.slice(-6)) {
    lines.push(
      `  step ${String(step).padStart(6)} · ${suite.padEnd(8)} · pass@1 ${percent(pass_at_1)} of ${graded}`,
    );
  }
  if (status.report) lines.push(`  report: longhaul report ${status.run}${inFolder(flags)}`);
  return lines.join('\n');
}
