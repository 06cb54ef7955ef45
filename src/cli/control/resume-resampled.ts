// `longhaul resume RUN --resample`: first discards what the unfinished step has sampled, in a control record, then sends the Update `resume`.
import type { ControlState, RunStatus } from '../../activities/contracts.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { discardSamples, type Resampling } from '../../store/runs/resampling.js';
import { lastCommittedStep } from '../../store/runs/run-records.js';
import { resumeUpdate, statusQuery } from '../../workflows/messages.js';
import { explained } from '../command-refusals.js';
import { inFolder, requireRun } from '../output.js';
import { runHandle, type TemporalFlags, withClient } from '../temporal-access.js';

interface ResumedRun {
  control: ControlState;
  resampling: Resampling;
}

/** Gives each answer of the run `withinMs`. Throws, and changes nothing, if the run may be sampling or `store` is not its store. */
export function resumeResampled(
  store: ObjectStore | null,
  run: string,
  flags: TemporalFlags,
  withinMs: number,
): Promise<ResumedRun> {
  return withClient(flags, async (client) => {
    const handle = runHandle(client, run);
    const answered = <T>(ask: () => Promise<T>): Promise<T> =>
      explained(handle, client.withDeadline(Date.now() + withinMs, ask), flags);
    const status = await answered(() => handle.query(statusQuery));
    const problem = whyNotResample(run, status, flags);
    if (problem !== null) throw new Error(problem);
    const resampling = await discarded(store, status);
    return { control: await answered(() => handle.executeUpdate(resumeUpdate)), resampling };
  });
}

/** Null if no episode of the run is in flight: it is paused, or blocked. */
export function whyNotResample(
  run: string,
  { phase, blocked }: Pick<RunStatus, 'phase' | 'blocked'>,
  flags: TemporalFlags = {},
): string | null {
  if (phase === 'paused' || blocked !== null) return null;
  const folder = inFolder(flags);
  return (
    `${run} is neither paused nor blocked, so its step may be sampling: ` +
    `first \`longhaul pause ${run} --now${folder}\`, wait until \`longhaul status ${run}${folder}\` says that it is paused, then give the command again`
  );
}

async function discarded(
  store: ObjectStore | null,
  { run, step }: Pick<RunStatus, 'run' | 'step'>,
): Promise<Resampling> {
  const named = 'name the store of the run with --store';
  if (!store) throw new Error(`no store is found, and the episodes of ${run} are in it: ${named}`);
  await requireRun(store, run);
  const stored = await lastCommittedStep(store, run);
  if (stored < step)
    throw new Error(
      `${store.address} has ${run} only up to step ${stored}, and the run is at step ${step}: ${named}`,
    );
  return discardSamples(store, run);
}

export function resampledText(run: string, resampling: Resampling): string {
  if (resampling.kind === 'nothing') return `nothing to discard: ${resampling.why}. ${run} continues`;
  const { step, control, episodes } = resampling;
  const what =
    episodes === 0
      ? 'it had no finished episode, and its turns so far are not continued'
      : `${episodes === 1 ? 'its one finished episode is' : `its ${episodes} finished episodes are`} set aside, and the bytes are kept`;
  return `${run} continues, and samples step ${step} again: ${what} (control record ${control})`;
}
