// Starts a run's workflow, or finds it running, and follows it to its end: what `train`, `fork` and `rewind` have in common.
import { type Client, WorkflowFailedError } from '@temporalio/client';
import { percent } from '../report/format.js';
import type { RunSpec } from '../spec/run-spec.js';
import type { TrainingOptions } from '../workflows/training-run.js';
import { followRun } from './live-view.js';
import { inFolder } from './output.js';
import { startTraining, whyItEnded } from './start-training.js';
import { type TemporalFlags, temporalConfig } from './temporal-access.js';

export interface FollowFlags extends TemporalFlags {
  json?: boolean;
  /** Start it and return. */
  detach?: boolean;
}

/** `begun` says what a new workflow is doing. Throws the sentence that a failed workflow leaves. */
export async function trainAndFollow(
  client: Client,
  spec: RunSpec,
  flags: FollowFlags,
  { begun, options = {} }: { begun: string; options?: TrainingOptions },
): Promise<void> {
  const { handle, started } = await startTraining(client, spec, options);
  say(started ? begun : `${spec.name} is running already; following it`);
  const { stack } = temporalConfig(flags);
  if (stack)
    say(`Temporal UI: ${stack.ui}/namespaces/default/workflows/${encodeURIComponent(handle.workflowId)}`);
  if (flags.detach) {
    if (flags.json) console.log(JSON.stringify({ run: spec.name, workflowId: handle.workflowId, started }));
    return;
  }
  try {
    const result = await followRun(client, handle, { output: process.stderr });
    const last = result.evaluations.at(-1);
    console.log(
      flags.json
        ? JSON.stringify(result)
        : `${result.run} ${result.ended} at step ${result.step}` +
            (last ? `, held-out pass@1 ${percent(last.pass_at_1)}` : '') +
            (result.budget ? `; ${result.budget}` : '') +
            (result.report ? `; for its report: longhaul report ${result.run}${inFolder(flags)}` : ''),
    );
  } catch (error) {
    if (error instanceof WorkflowFailedError) throw new Error(whyItEnded(error), { cause: error });
    throw error;
  }
}

function say(message: string): void {
  process.stderr.write(`${message}\n`);
}
