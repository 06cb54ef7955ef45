// Time in which a run does not get on, as its workflow alone sees it: while it is paused or blocked, while it has no node, and
// while nobody drives it. Of the server's clock; each update takes it over into the records (ft/*).
import { nodeLostAfterMs, type RevokedLease } from '../messages.js';
import type { Observation, RunPhase, StepFaults } from '../../activities/contracts.js';

const idlePhases: Partial<Record<RunPhase, string>> = {
  paused: 'ft/paused_seconds',
  blocked: 'ft/blocked_seconds',
  placing: 'ft/waiting_seconds',
};

/** Between an activity's end and the workflow's next turn: what takes longer is no pace of a healthy server. */
const paceMs = 1_000;

export class IdleClock {
  private readonly figures: Record<string, number>;
  private recorded: boolean;
  private idle: string | null = null;
  private since = Date.now();
  private stalledUntil = 0;

  constructor(carried: StepFaults | undefined) {
    this.figures = { ...carried?.figures };
    this.recorded = carried?.recorded ?? false;
  }

  phase(phase: RunPhase): void {
    this.accrue();
    this.idle = idlePhases[phase] ?? null;
  }

  add(name: string, seconds: number): void {
    if (seconds > 0) this.figures[name] = (this.figures[name] ?? 0) + seconds;
  }

  /** A node was lost, or told to end. A run that waits for a person has lost nothing with it. True where it counts. */
  nodeGone(reason: RevokedLease['reason']): boolean {
    if (reason === 'released' || this.idle === idlePhases.paused || this.idle === idlePhases.blocked)
      return false;
    this.add(`ft/restarts/${reason === 'lost' ? 'node_lost' : 'node_drained'}`, 1);
    if (reason !== 'lost') return true;
    // It was alive at its last report.
    this.add('ft/detection_seconds', nodeLostAfterMs / 1000);
    this.add('ft/lost_seconds', nodeLostAfterMs / 1000);
    return true;
  }

  /** Call as soon as an activity has answered. Those whose answers were held up by the same outage count it once. */
  answered({ ended_at, troubled }: Observation): void {
    if (troubled) this.recorded = true;
    const now = Date.now();
    const stalled = now - Math.max(ended_at ?? now, this.stalledUntil);
    if (stalled <= paceMs) return;
    this.stalledUntil = now;
    this.add('ft/stalled_seconds', stalled / 1000);
    this.add('ft/lost_seconds', stalled / 1000);
  }

  /** What the records do not tell yet; undefined where nothing happened. */
  get open(): StepFaults | undefined {
    this.accrue();
    if (!this.recorded && Object.keys(this.figures).length === 0) return undefined;
    return { recorded: this.recorded, figures: { ...this.figures } };
  }

  /** An update has taken it over, but for what is `unrecorded`. */
  settled(faults: StepFaults | undefined, unrecorded: Record<string, number> = {}): void {
    if (!faults) return;
    this.recorded = false;
    for (const [name, value] of Object.entries(faults.figures)) {
      const left = (this.figures[name] ?? 0) - value + (unrecorded[name] ?? 0);
      if (left > 0) this.figures[name] = left;
      else delete this.figures[name];
    }
  }

  private accrue(): void {
    const now = Date.now();
    if (this.idle !== null) this.add(this.idle, (now - this.since) / 1000);
    this.since = now;
  }
}
