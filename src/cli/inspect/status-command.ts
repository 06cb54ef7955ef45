// `longhaul status RUN`: a run's position and last figures. With --watch it updates them until the run ends.
import { setTimeout as delay } from 'node:timers/promises';
import type { Command } from 'commander';
import type { RunStatus } from '../../activities/contracts.js';
import { nameOfRun } from '../../store/record-keys.js';
import { lastCommittedStep, readRunIfAny } from '../../store/runs/run-records.js';
import { readTroubles, type Trouble } from '../../store/runs/notices.js';
import type { AlertStanding } from '../../rl/alerts.js';
import { alertLines } from '../../report/alerts.js';
import { budgetNotes, servedNote } from '../../workflows/status/budget.js';
import { faultNote } from '../../workflows/status/fault-note.js';
import { settingNotes } from '../../workflows/hyperparameters.js';
import { statusQuery } from '../../workflows/messages.js';
import {
  collectionNote,
  latePauseNote,
  signalNotes,
  stopNote,
  suiteText,
  targetNote,
} from '../../workflows/status/run-text.js';
import { followRun, progressLine } from '../train/live-view.js';
import { countedPassRate } from '../../spec/pass-rate.js';
import { inFolder, openExistingStore, printable, storeOfFolder, storeOption, withOutput } from '../output.js';
import { alertsWithin } from '../train/run-alerts.js';
import { fullDiskNote } from '../../stack/disk-space.js';
import { nearestStackFolder } from '../stack-folder.js';
import {
  runHandle,
  storeOfCommand,
  type TemporalFlags,
  UnnamedServer,
  withClient,
  withTemporalFlags,
} from '../temporal-access.js';
import { explained } from '../command-refusals.js';
import { endedRun, type EndedRun, endLine, wayOn, whyFollowedEnded } from '../train/run-end.js';
import { type Played, underWay, type Waiting, waitingLine } from '../waiting-text.js';

interface StatusFlags extends TemporalFlags {
  store: string;
  watch?: boolean;
  json?: boolean;
}

type Undelivered = Trouble & { sink: string };

const storeWithinMs = 10_000;

export function register(program: Command): void {
  withTemporalFlags(
    program.command('status').argument('<run>', 'name of the run').description('show where a run is'),
    'reads',
  )
    .addOption(storeOption())
    .option('--watch', 'follow it until it ends')
    .option('--json', 'print the status as JSON')
    .action(
      withOutput(async (run: string, flags: StatusFlags, command: Command) => {
        const answer = withClient(flags, async (client) => {
          const handle = runHandle(client, run);
          const over = await explained(handle, endedRun(handle), flags);
          if (over) {
            if (over.end.how !== 'cancelled') process.exitCode = 1;
            const { end, status } = over;
            const [alerts, undelivered] = await Promise.all([
              status ? alertsWithin(() => storeOfCommand(command, flags), status.run, null) : [],
              undeliveredOf(command, flags, status?.run ?? run),
            ]);
            console.log(
              flags.json
                ? JSON.stringify({ run, ...status, waiting: [], alerts, undelivered, end })
                : farewell(run, over, alerts, undelivered, flags),
            );
            return;
          }
          const status = await explained(
            handle,
            client.withDeadline(Date.now() + 10_000, () => handle.query(statusQuery)),
            flags,
          );
          const goesOn = !hasEnded(status);
          const [{ waiting, played }, alerts, undelivered] = await Promise.all([
            underWay(client, handle),
            alertsWithin(() => storeOfCommand(command, flags), status.run, goesOn ? status : null),
            undeliveredOf(command, flags, status.run),
          ]);
          console.log(
            flags.json
              ? JSON.stringify({ ...status, waiting, alerts, undelivered })
              : describe(status, { waiting, played }, alerts, undelivered, flags),
          );
          if (!flags.watch || !goesOn) return;
          const result = await followRun(client, handle, {
            output: process.stderr,
            folder: flags.folder,
          }).catch(async (error: unknown) => {
            throw await whyFollowedEnded(handle, run, error, flags);
          });
          const raised = await alertsWithin(() => storeOfCommand(command, flags), result.run, null);
          console.log(
            flags.json
              ? JSON.stringify({ ...result, alerts: raised })
              : [
                  `${run} ${targetNote(result) ?? `has ended (${result.ended}) at step ${result.step}`}`,
                  ...alertLines(raised).map(alertLine),
                ].join('\n'),
          );
        });
        await answer.catch(async (error: unknown) => {
          const full = fullDiskNote(flags.folder ?? nearestStackFolder());
          if (full !== null && error instanceof Error)
            throw new Error(`${full}\n${error.message}`, { cause: error });
          throw error instanceof UnnamedServer
            ? new Error(`${error.message}${await storedNote(command, flags, run)}`, { cause: error })
            : error;
        });
      }),
    );
}

/** What the store knows of the run: without a server, other commands still read it. */
async function storedNote(command: Command, flags: StatusFlags, run: string): Promise<string> {
  const store = await (
    flags.folder === undefined
      ? storeOfCommand(command, flags)
      : openExistingStore(storeOfFolder(flags.folder))
  ).catch(() => null);
  if (!store || !(await readRunIfAny(store, run).catch(() => null))) return '';
  const step = await lastCommittedStep(store, run).catch(() => -1);
  const where = inFolder(flags);
  const until = step < 0 ? '' : ` up to step ${step}`;
  return `.\nThe store has the records of ${run}${until}, which need no server: longhaul report ${run}${where}, longhaul audit ${run}${where}`;
}

/** Says how the workflow of a run ended, if it did not complete. */
function farewell(
  run: string,
  { end, status }: EndedRun,
  alerts: readonly AlertStanding[],
  undelivered: readonly Undelivered[],
  flags: TemporalFlags,
): string {
  const known = status
    ? [`${status.run} · ${progressLine(status, end.how)}`, ...figures(status, flags, null)]
    : [`${run} · ${end.how}${end.claimed ? '' : ' before it had begun'}`];
  return [
    ...known,
    ...alertLines(alerts).map(alertLine),
    ...undelivered.map(undeliveredLine),
    ...[endLine(end), wayOn(nameOfRun(run), end, status !== null, flags)].flatMap(indented),
  ].join('\n');
}

function describe(
  status: RunStatus,
  { waiting, played }: { waiting: readonly Waiting[]; played: Played | null },
  alerts: readonly AlertStanding[],
  undelivered: readonly Undelivered[],
  flags: TemporalFlags,
): string {
  const head = `${status.run} · ${progressLine(status, null, flags.folder, played)}`;
  return [
    head,
    ...figures(status, flags, waiting),
    ...alertLines(alerts).map(alertLine),
    ...undelivered.map(undeliveredLine),
  ].join('\n');
}

function hasEnded({ phase }: RunStatus): boolean {
  return phase === 'completed' || phase === 'stopped';
}

/** A reason may quote text of an environment server, which is untrusted. */
function alertLine(line: string): string {
  return `  ${printable(line)}`;
}

/**
 * The data that trackers and channels have not received. Empty if the store cannot be read, because the rest of the status does not need
 * it.
 */
async function undeliveredOf(command: Command, flags: StatusFlags, run: string): Promise<Undelivered[]> {
  const read = async (): Promise<Undelivered[]> => {
    const store = await storeOfCommand(command, flags);
    const troubles = store ? await readTroubles(store, run) : [];
    return troubles.map(({ sink, trouble }) => ({ sink, ...trouble }));
  };
  const late = delay(storeWithinMs, [], { ref: false });
  return Promise.race([read().catch(() => []), late]);
}

/** `slack lacks messages behind step 12 since 08:11 UTC: …`. The reason includes the fix if there is one. */
function undeliveredLine({ sink, what, reason, since }: Undelivered): string {
  const at = since.slice(0, 16).replace('T', ' ');
  return `  ${sink} lacks ${what} since ${at} UTC: ${printable(reason)}`;
}

/** `waiting`: null once the run has ended, when nodes and limits no longer concern it. */
function figures(status: RunStatus, flags: TemporalFlags, waiting: readonly Waiting[] | null): string[] {
  const full = waiting ? fullDiskNote(flags.folder ?? nearestStackFolder()) : null;
  const nodes = [status.node ?? 'none', ...status.sharingNodes].join(', ');
  const lines = [
    `  ${waiting ? `node ${nodes} · ` : ''}owner ${status.owner} · last checkpoint ${status.lastCheckpoint ?? 'none yet'}`,
  ];
  if (full) lines.push(`  ${full}`);
  if (status.lineage) lines.push(`  continues from ${status.lineage.run} after step ${status.lineage.step}`);
  if (waiting && status.waitsFor !== null) lines.push(`  waits for a node: ${status.waitsFor}`);
  for (const one of waiting ?? []) lines.push(`  ${waitingLine(one)}`);
  const faults = faultNote(status.faults ?? {});
  if (faults) lines.push(`  ${faults}`);
  lines.push(...budgetNotes(status.budget ?? []).map((note) => `  ${note}`));
  if (status.served) lines.push(`  sent to the server: ${servedNote(status.served)}`);
  lines.push(...settingNotes(status.control).map((note) => `  ${note}`));
  if (waiting) lines.push(...signalNotes(status).map((note) => `  ${printable(note)}`));
  const collection = collectionNote(status);
  if (collection) lines.push(`  warning: ${printable(collection)}`);
  const target = targetNote(status);
  if (target) lines.push(`  ${target}`);
  const late = latePauseNote(status);
  if (late) lines.push(`  ${late}`);
  const stop = waiting ? stopNote(status) : null;
  if (stop) lines.push(`  ${stop}`);
  for (const { step, suite, ...evaluation } of status.evaluations.slice(-6)) {
    lines.push(
      `  step ${String(step).padStart(6)} · ${suiteText({ suite, ...evaluation }).padEnd(8)} · pass@1 ${countedPassRate(evaluation)}`,
    );
  }
  const unknown = unknownNote(status);
  if (unknown) lines.push(`  ${unknown}`);
  if (status.report) lines.push(`  report: longhaul report ${status.run}${inFolder(flags)}`);
  return lines;
}

/**
 * Counts the unknown outcomes of the last rollouts (of the last evaluation if the rollouts had none) and names the most frequent reason.
 */
function unknownNote({ outcomes, evaluations }: RunStatus): string | null {
  const evaluation = evaluations.at(-1);
  const {
    step,
    graded,
    unknown = 0,
    unknown_reason,
  } = outcomes && outcomes.last.unknown > 0 ? outcomes.last : (evaluation ?? { step: 0, graded: 0 });
  if (unknown === 0) return null;
  const why = unknown_reason === undefined ? '' : `, most of them ${printable(unknown_reason)}`;
  return `unknown outcomes: ${unknown} of ${graded + unknown} at step ${step}${why}`;
}

/** A cause may have several lines, one for each problem. */
function indented(text: string): string[] {
  return text.split('\n').map((line) => `  ${line}`);
}
