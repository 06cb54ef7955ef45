// The activities of a node's two queues.
import type { NodeActivities, TransferActivities } from './contracts.js';
import { keepingDivergence } from './attempt-evidence.js';
import { collectRollouts } from './collect-rollouts.js';
import { commitBase } from './commit-base.js';
import { evaluatePair } from './evaluate-pair.js';
import { evaluateState } from './evaluate-state.js';
import { withFailures } from './failure-mapping.js';
import { withRunView } from './run-view.js';
import type { NodeDeps } from './node-deps.js';
import { recovering } from './recovery.js';
import { saveState, uploadCheckpoint } from './save-state.js';
import type { SweepNodeActivities } from './sweep-contracts.js';
import { updatePolicy } from './update-policy.js';

export function createNodeActivities(deps: NodeDeps): NodeActivities & SweepNodeActivities {
  return {
    commitBase: withFailures(withRunView(deps, recovering(keepingDivergence(commitBase)))),
    collectRollouts: withFailures(withRunView(deps, recovering(keepingDivergence(collectRollouts)))),
    // Keeps the result of each of its tries by itself.
    updatePolicy: withFailures(withRunView(deps, recovering(updatePolicy))),
    evaluateState: withFailures(withRunView(deps, recovering(keepingDivergence(evaluateState)))),
    evaluatePair: withFailures(evaluatePair(deps)),
    saveState: withFailures(withRunView(deps, keepingDivergence(saveState))),
  };
}

export function createTransferActivities(deps: NodeDeps): TransferActivities {
  return { uploadCheckpoint: withFailures(withRunView(deps, keepingDivergence(uploadCheckpoint))) };
}
