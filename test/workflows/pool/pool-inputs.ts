// Complete messages from nodes and runs to the pool; a test names only the members that matter to it.
import type { LeaseRequest } from '../../../src/activities/contracts.js';
import type { NodeReport } from '../../../src/workflows/messages.js';

export const cpu1 = { backend: 'cpu', version: 1 } as const;
export const cpu2 = { backend: 'cpu', version: 2 } as const;

export function node(id: string, changes: Partial<NodeReport> = {}): NodeReport {
  return {
    ...{ id, instance: `${id}-1`, host: 'box', numerics: cpu1, gpu: null, memory_bytes: 1, places: 1 },
    ...changes,
  };
}

export function request(run: string, changes: Partial<LeaseRequest> = {}): LeaseRequest {
  return {
    ...{ lease: `${run}/1`, run, workflowId: `train/${run}`, firstExecutionRunId: `first-${run}` },
    ...{ project: 'tests', priority: 0, numerics: cpu1, besides: [] },
    ...changes,
  };
}
