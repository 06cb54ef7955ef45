// The activities of a node's two queues.
import type { NodeActivities, TransferActivities } from './contracts.js';
import { keepingDivergence } from './attempt/attempt-evidence.js';
import { collectRollouts } from './step/collect-rollouts.js';
import { commitBase } from './step/commit-base.js';
import { evaluatePair } from './evaluation/evaluate-pair.js';
import { evaluateState } from './evaluation/evaluate-state.js';
import { withFailures } from './attempt/failure-mapping.js';
import { withRunView } from './attempt/run-view.js';
import type { NodeDeps } from './node-deps.js';
import { recovering } from './attempt/recovery.js';
import { saveState, uploadCheckpoint } from './step/save-state.js';
import type { SweepNodeActivities } from './sweep-contracts.js';
import { updatePolicy } from './step/update-policy.js';

export function createNodeActivities(deps: NodeDeps): NodeActivities & SweepNodeActivities {
  return {
    commitBase: withFailures(withRunView(deps, recovering(keepingDivergence(commitBase)))),
    collectRollouts: withFailures(withRunView(deps, recovering(keepingDivergence(collectRollouts)))),
    // `keepingDivergence` is not needed here: updatePolicy records its own divergences.
    updatePolicy: withFailures(withRunView(deps, recovering(updatePolicy))),
    evaluateState: withFailures(withRunView(deps, recovering(keepingDivergence(evaluateState)))),
    evaluatePair: withFailures(evaluatePair(deps)),
    saveState: withFailures(withRunView(deps, keepingDivergence(saveState))),
  };
}

export function createTransferActivities(deps: NodeDeps): TransferActivities {
  return { uploadCheckpoint: withFailures(withRunView(deps, keepingDivergence(uploadCheckpoint))) };
}
