// Interruptions of a run that only its workflow knows. Each activity on a node receives them until one of these activities has returned;
// then the attempt records hold them (docs/operations.md, "What faults cost").
import type { Interruption, Observation } from '../activities/contracts.js';
import { nodeLostAfterMs, type RevokedLease } from './messages.js';

/** A wait longer than this is no normal delay of a healthy server, and counts as an interruption. */
const paceMs = 1_000;

export class Interruptions {
  private heardAt = 0;

  /** `undelivered`: interruptions that no returned activity has received. */
  constructor(public undelivered: readonly Interruption[] = []) {}

  /** A lost node was alive at its last report, so it costs `nodeLostAfterMs`; a draining node costs nothing. */
  nodeGone({ lease: event, node, reason }: RevokedLease): void {
    if (reason === 'lost') this.add({ what: 'node_lost', event, seconds: nodeLostAfterMs / 1000 });
    if (reason === 'draining') this.add({ what: 'node_drained', event, seconds: 0, node });
  }

  /** `since`: when the run began to wait for a node, the orchestrator or the server, in milliseconds since the epoch. */
  waitedSince(since: number): void {
    const waited = Date.now() - since;
    if (waited > paceMs) this.add({ what: 'waited', seconds: waited / 1000 });
  }

  /** An activity that received `reported` has returned. If several results arrive together after an outage, they count as one wait. */
  answered(reported: readonly Interruption[], { ended_at = Infinity }: Observation): void {
    this.undelivered = this.undelivered.filter((one) => !reported.includes(one));
    this.waitedSince(Math.max(ended_at, this.heardAt));
    this.heardAt = Date.now();
  }

  private add(interruption: Interruption): void {
    this.undelivered = [...this.undelivered, interruption];
  }
}
