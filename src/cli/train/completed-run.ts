// Finds out that a run is complete, so that another start of it would only wait for a node and change nothing.
import { isDeepStrictEqual } from 'node:util';
import type { Client } from '@temporalio/client';
import { refuseDifference } from '../../activities/run/open-run.js';
import { within } from '../../workers/follower/deadlines.js';
import type { RunSpec } from '../../spec/run-spec.js';
import { parseRunSpec } from '../../spec/spec-input.js';
import { runEvaluationKey } from '../../store/record-keys.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { readEvaluated } from '../../store/evaluations/run-evaluations.js';
import { readRecord } from '../../store/records/records.js';
import { openRunView } from '../../store/runs/quarantine.js';
import { lastCommittedStep } from '../../store/runs/run-records.js';
import type { TrainingResult } from '../../workflows/run/training-run.js';
import { runHandle, workflowIdOf } from '../temporal-access.js';
import { inputOfWorkflow } from './workflow-input.js';

const answerWithinMs = 10_000;

/**
 * The result of the run's last workflow if that completed the run with this spec, and the records that it made are in the store. Null where
 * a start has something to do: a run that was stopped, another spec, other channels to follow it in, records that were set aside, another
 * store; null, too, if any of this cannot be found out from here.
 */
export async function completedResult(
  client: Client,
  spec: RunSpec,
  openStore: () => Promise<ObjectStore | null>,
): Promise<TrainingResult | null> {
  try {
    const result = await client.withDeadline(Date.now() + answerWithinMs, async () => {
      const handle = runHandle(client, spec.name);
      const { status } = await handle.describe();
      return status.name === 'COMPLETED' ? handle.result() : null;
    });
    if (result?.ended !== 'completed') return null;
    const started = parseRunSpec(await inputOfWorkflow(client, workflowIdOf(spec.name)));
    if (!startsTheSame(started, spec)) return null;
    const forever = new AbortController().signal;
    const isRecorded = async (): Promise<boolean> => {
      const store = await openStore();
      return store !== null && hasRecordsOf(store, result);
    };
    return (await within(answerWithinMs, 'the store', isRecorded, forever)) ? result : null;
  } catch {
    // The start itself says what is wrong.
    return null;
  }
}

/** Throws `InvalidSpec` if the run cannot be continued with `spec`. */
function startsTheSame(started: RunSpec, spec: RunSpec): boolean {
  refuseDifference(spec.name, started, spec);
  // A follower begins with a start. Without `fork`, a spec continues the newest timeline of its name.
  return (
    isDeepStrictEqual([started.tracking, started.slack], [spec.tracking, spec.slack]) &&
    (spec.fork === undefined || isDeepStrictEqual(started.fork, spec.fork))
  );
}

async function hasRecordsOf(store: ObjectStore, { run, step }: TrainingResult): Promise<boolean> {
  const view = await openRunView(store, run);
  if ((await lastCommittedStep(view, run)) !== step) return false;
  const evaluated = await readRecord(view, runEvaluationKey(run, step, 'final'), 'evaluated');
  return evaluated !== null && (await readEvaluated(view, evaluated)) !== null;
}
