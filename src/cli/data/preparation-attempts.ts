// Preparations of datasets that the store does not have: still under way, failed or ended by hand. Only the Temporal server knows them.
import { type Client, type WorkflowExecutionInfo, WorkflowFailedError } from '@temporalio/client';
import { openStatuses, type TemporalFlags, temporalConfig, withClient } from '../temporal-access.js';
import { whyItEnded } from '../train/start-training.js';

const answerWithinMs = 5_000;
const mostListed = 20;
const workflowPrefix = 'data/';

interface PreparationAttempt {
  dataset: string;
  how: 'under way' | 'failed' | 'terminated' | 'cancelled' | 'timed out';
  /** Time of the start, or of the end, by the server's clock, ISO 8601. */
  at: string;
  /** Why the attempt ended; null while it is under way, or if no reason is known. */
  cause: string | null;
}

export interface AttemptsPlace {
  flags: TemporalFlags;
  /** Address of the store that a person named; null: the stack's. A stack with another store knows nothing of its datasets. */
  namedStore: string | null;
}

/** The last attempt to prepare the dataset; null if there is none, it succeeded, or no server answers. */
export function lastAttempt(place: AttemptsPlace, dataset: string): Promise<PreparationAttempt | null> {
  return asked(place, null, async (client) =>
    attemptOf(client, await client.workflow.getHandle(`${workflowPrefix}${dataset}`).describe()),
  );
}

/** The newest attempts without a dataset, one for each name. Empty if no server answers. */
export function attemptsWithout(
  place: AttemptsPlace,
  prepared: ReadonlySet<string>,
): Promise<PreparationAttempt[]> {
  return asked(place, [], async (client) => {
    const newest = new Map<string, Execution>();
    for await (const one of client.workflow.list({ query: 'WorkflowType = "prepareDataset"' })) {
      const known = newest.get(one.workflowId);
      if (!prepared.has(datasetOf(one)) && (!known || known.startTime < one.startTime))
        newest.set(one.workflowId, one);
      if (newest.size === mostListed) break;
    }
    const attempts = await Promise.all([...newest.values()].map((one) => attemptOf(client, one)));
    return attempts.filter((one) => one !== null);
  });
}

/** `the preparation of crm@v1 failed at 2026-11-28 07:10 UTC: …`. */
export function attemptText({ dataset, how, at, cause }: PreparationAttempt): string {
  const time = `${at.slice(0, 16).replace('T', ' ')} UTC`;
  if (how === 'under way')
    return `the preparation of ${dataset} has been under way since ${time}: \`longhaul data prepare FILE\` follows it`;
  const was = how === 'terminated' || how === 'cancelled' ? 'was ' : '';
  return `the preparation of ${dataset} ${was}${how} at ${time}${cause === null ? '' : `: ${cause}`}`;
}

/** Does not fail: the store has the rest of the answer. */
async function asked<Answer>(
  { flags, namedStore }: AttemptsPlace,
  otherwise: Answer,
  ask: (client: Client) => Promise<Answer>,
): Promise<Answer> {
  try {
    const { stack, source } = temporalConfig(flags);
    if (source === null || (namedStore !== null && stack && stack.store !== namedStore)) return otherwise;
    return await withClient(flags, (client) =>
      client.withDeadline(Date.now() + answerWithinMs, () => ask(client)),
    );
  } catch {
    return otherwise;
  }
}

type Execution = Pick<WorkflowExecutionInfo, 'workflowId' | 'runId' | 'status' | 'startTime'> & {
  closeTime?: Date | undefined;
};

const ways: Partial<Record<string, PreparationAttempt['how']>> = {
  FAILED: 'failed',
  TERMINATED: 'terminated',
  CANCELLED: 'cancelled',
  TIMED_OUT: 'timed out',
};

async function attemptOf(client: Client, one: Execution): Promise<PreparationAttempt | null> {
  const dataset = datasetOf(one);
  if (openStatuses.includes(one.status.name))
    return { dataset, how: 'under way', at: one.startTime.toISOString(), cause: null };
  const how = ways[one.status.name];
  if (how === undefined) return null;
  const cause = await client.workflow
    .getHandle(one.workflowId, one.runId)
    .result()
    .then(
      () => null,
      (error: unknown) => {
        const why = error instanceof WorkflowFailedError ? whyItEnded(error) : null;
        // A message in the SDK's own words means that no reason was given.
        return how === 'failed' || !why?.startsWith('Workflow execution ') ? why : null;
      },
    );
  return { dataset, how, at: (one.closeTime ?? one.startTime).toISOString(), cause };
}

function datasetOf({ workflowId }: Pick<Execution, 'workflowId'>): string {
  return workflowId.slice(workflowPrefix.length);
}
