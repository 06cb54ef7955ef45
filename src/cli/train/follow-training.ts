// Starts a run's workflow, or finds it running, and follows it to its end, for `train`, `fork` and `rewind`.
import { type Client } from '@temporalio/client';
import { alertLines } from '../../report/alerts.js';
import { timeSpan } from '../../report/format.js';
import { countedPassRate } from '../../spec/pass-rate.js';
import type { RunSpec } from '../../spec/run-spec.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { statusQuery } from '../../workflows/messages.js';
import { targetNote } from '../../workflows/status/run-text.js';
import type { TrainingResult } from '../../workflows/run/training-run.js';
import type { TrainingOptions } from '../../workflows/run/training-options.js';
import { completedResult } from './completed-run.js';
import { beginsWithinMs, whenBegun } from '../followed-workflow.js';
import { followRun } from './live-view.js';
import { inFolder, printable } from '../output.js';
import { alertsWithin } from './run-alerts.js';
import { endedError, endedRun, whyFollowedEnded } from './run-end.js';
import { startTraining } from './start-training.js';
import { type RunHandle, type TemporalFlags, temporalConfig, workflowIdOf } from '../temporal-access.js';

const queryDeadlineMs = 3_000;

export interface FollowFlags extends TemporalFlags {
  json?: boolean;
  /** Return once it is started. */
  detach?: boolean;
}

interface FollowedStart {
  begun: string;
  options?: TrainingOptions;
  /** Opens the run's store if this machine can reach it; needed for the alerts at the run's end. */
  store: () => Promise<ObjectStore | null>;
}

/**
 * `begun`: what to print when a new workflow was started. Throws if the workflow ends without completing, even if nobody asked to follow
 * it.
 */
export async function trainAndFollow(
  client: Client,
  spec: RunSpec,
  flags: FollowFlags,
  { begun, options = {}, store }: FollowedStart,
): Promise<void> {
  const done = options.takeOver ? null : await completedResult(client, spec, store);
  if (done) return sayComplete(done, spec.name, flags, store);
  const { handle, started } = await startTraining(client, spec, options);
  say(started ? begun : `${spec.name} is running already${flags.detach ? '' : '; following it'}`);
  const { stack } = temporalConfig(flags);
  if (stack)
    say(`Temporal UI: ${stack.ui}/namespaces/default/workflows/${encodeURIComponent(handle.workflowId)}`);
  if (flags.detach) {
    const begins = await howItBegins(client, handle, spec.name, flags);
    const claimed = begins === 'claimed';
    const { workflowId } = handle;
    if (flags.json) console.log(JSON.stringify({ run: spec.name, workflowId, started, claimed }));
    const watch = `longhaul status ${spec.name}${inFolder(flags)}`;
    if (claimed) say(`watch it with: ${watch} --watch`);
    else if (begins === 'late')
      say(`it has not begun to work within ${timeSpan(beginsWithinMs / 1000)}; check again with: ${watch}`);
    return;
  }
  try {
    const result = await followRun(client, handle, { output: process.stderr, folder: flags.folder });
    await printResult(result, `${result.run} ${endOf(result)}`, flags, store);
  } catch (error) {
    throw await whyFollowedEnded(handle, spec.name, error, flags);
  }
}

async function printResult(
  result: TrainingResult,
  text: string,
  flags: FollowFlags,
  store: FollowedStart['store'],
): Promise<void> {
  const alerts = await alertsWithin(store, result.run, null);
  console.log(
    flags.json
      ? JSON.stringify({ ...result, alerts })
      : text +
          (result.budget ? `; ${result.budget}` : '') +
          (result.report ? `; to write its report: longhaul report ${result.run}${inFolder(flags)}` : '') +
          alertLines(alerts)
            .map((line) => `\n  ${printable(line)}`)
            .join(''),
  );
}

/** Says that nothing was started, because the run is complete. */
async function sayComplete(
  result: TrainingResult,
  name: string,
  flags: FollowFlags,
  store: FollowedStart['store'],
): Promise<void> {
  const { run, ended, step } = result;
  if (flags.detach && flags.json) {
    const workflowId = workflowIdOf(name);
    console.log(JSON.stringify({ run: name, workflowId, started: false, claimed: true, ended, step }));
    return;
  }
  const way = `longhaul fork ${run}@${step} --name NEW --set max_training_steps=N${inFolder(flags)}`;
  const text = `${run} ${endOf(result)}; it is complete, so nothing was started; to train it further: ${way}`;
  await printResult(result, text, flags, store);
}

function endOf(result: TrainingResult): string {
  const target = targetNote(result);
  if (target !== null) return target;
  const last = result.evaluations.at(-1);
  return `${result.ended} at step ${result.step}${last ? `, held-out pass@1 ${countedPassRate(last)}` : ''}`;
}

/** `late`: no answer came in time. Throws if the workflow ended before it claimed the run. */
export async function howItBegins(
  client: Client,
  handle: RunHandle,
  name: string,
  flags: FollowFlags,
): Promise<'claimed' | 'blocked' | 'late'> {
  const found = await whenBegun(async () => {
    const over = await endedRun(handle);
    if (over) throw endedError(name, over, flags);
    const status = await client
      .withDeadline(Date.now() + queryDeadlineMs, () => handle.query(statusQuery))
      .catch(() => null);
    if (status && status.owner > 0) return 'claimed';
    if (!status?.blocked) return null;
    say(`${name} is blocked: ${status.blocked.reason}\n${status.blocked.remedy}${inFolder(flags)}`);
    return 'blocked';
  });
  return found ?? 'late';
}

function say(message: string): void {
  process.stderr.write(`${message}\n`);
}
