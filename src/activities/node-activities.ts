// The activities of a node's two queues.
import type { NodeActivities, TransferActivities } from './contracts.js';
import { collectRollouts } from './collect-rollouts.js';
import { commitBase } from './commit-base.js';
import { evaluateState } from './evaluate-state.js';
import { withFailures } from './failure-mapping.js';
import type { NodeDeps } from './node-deps.js';
import { saveState, uploadCheckpoint } from './save-state.js';
import { sealBatch } from './seal-batch.js';
import { updatePolicy } from './update-policy.js';

export function createNodeActivities(deps: NodeDeps): NodeActivities {
  return {
    commitBase: withFailures((input) => commitBase(deps, input)),
    collectRollouts: withFailures((input) => collectRollouts(deps, input)),
    sealBatch: withFailures((input) => sealBatch(deps, input)),
    updatePolicy: withFailures((input) => updatePolicy(deps, input)),
    evaluateState: withFailures((input) => evaluateState(deps, input)),
    saveState: withFailures((input) => saveState(deps, input)),
  };
}

export function createTransferActivities(deps: NodeDeps): TransferActivities {
  return { uploadCheckpoint: withFailures((input) => uploadCheckpoint(deps, input)) };
}
