// What held a run up and its workflow alone knows. Each activity on a node is told of it until one has answered: by then the records
// of its attempts tell it (docs/operations.md, "What faults cost").
import type { Interruption, Observation } from '../activities/contracts.js';
import { nodeLostAfterMs, type RevokedLease } from './messages.js';

/** What takes longer is no pace of a healthy server. */
const paceMs = 1_000;

export class Interruptions {
  private heardAt = 0;

  /** `untold`: what no activity that has answered was told. */
  constructor(public untold: readonly Interruption[] = []) {}

  /** One that is lost was alive at its last report. */
  nodeGone({ lease: event, reason }: RevokedLease): void {
    if (reason === 'lost') this.add({ what: 'node_lost', event, seconds: nodeLostAfterMs / 1000 });
    if (reason === 'draining') this.add({ what: 'node_drained', event, seconds: 0 });
  }

  /** Since then, ms since the epoch, it has waited for a node, the orchestrator or the server. */
  waitedSince(since: number): void {
    const waited = Date.now() - since;
    if (waited > paceMs) this.add({ what: 'waited', seconds: waited / 1000 });
  }

  /** An activity that was told `told` has answered. Several answers that came together after an outage have waited once. */
  answered(told: readonly Interruption[], { ended_at = Infinity }: Observation): void {
    this.untold = this.untold.filter((one) => !told.includes(one));
    this.waitedSince(Math.max(ended_at, this.heardAt));
    this.heardAt = Date.now();
  }

  private add(interruption: Interruption): void {
    this.untold = [...this.untold, interruption];
  }
}
