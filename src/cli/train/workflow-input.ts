// Reads the input that a running workflow was started with.
import type { Client } from '@temporalio/client';
import { defaultPayloadConverter } from '@temporalio/common';

const answerWithinMs = 10_000;

/**
 * The workflow's first argument; null if it cannot be decoded here, for example if its owner uses a codec. Throws if the workflow does not
 * exist.
 */
export async function inputOfWorkflow(client: Client, workflowId: string): Promise<unknown> {
  const { history } = await client.withDeadline(Date.now() + answerWithinMs, () =>
    client.workflowService.getWorkflowExecutionHistory({
      namespace: client.options.namespace,
      execution: { workflowId },
      maximumPageSize: 1,
    }),
  );
  const input = history?.events?.[0]?.workflowExecutionStartedEventAttributes?.input?.payloads?.[0];
  try {
    return input ? defaultPayloadConverter.fromPayload(input) : null;
  } catch {
    return null;
  }
}
