// The pool of nodes: who is there, by their own reports. It answers questions and decides nothing that must last.
import { condition, continueAsNew, setHandler, workflowInfo } from '@temporalio/workflow';
import { type KnownNode, nodeDownSignal, nodesQuery, nodeUpSignal } from './messages.js';

/** Nodes that have been silent for this long are forgotten. */
const forgetAfterMs = 24 * 3_600_000;
/** Reports of one execution; each writes a few events, and a workflow may receive 10,000 signals. */
const reportsPerExecution = 2_000;

/** Workflow id `nodes/default`. Node workers start it with their first report. */
export async function nodePool(known: KnownNode[] = []): Promise<void> {
  const nodes = new Map(known.map((node) => [node.id, node]));
  let reports = 0;
  setHandler(nodesQuery, () => sorted(nodes), {
    description: 'Known nodes, each with the time of its last report',
  });
  setHandler(nodeUpSignal, (report) => {
    reports += 1;
    nodes.set(report.id, { ...report, lastSeen: Date.now() });
  });
  setHandler(nodeDownSignal, ({ id }) => {
    nodes.delete(id);
  });
  await condition(() => reports >= reportsPerExecution || workflowInfo().continueAsNewSuggested);
  const recent = sorted(nodes).filter((node) => Date.now() - node.lastSeen < forgetAfterMs);
  await continueAsNew<typeof nodePool>(recent);
}

function sorted(nodes: Map<string, KnownNode>): KnownNode[] {
  return [...nodes.values()].sort((a, b) => (a.id < b.id ? -1 : 1));
}
