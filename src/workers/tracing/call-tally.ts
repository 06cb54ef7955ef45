// Traces many calls of one kind as one span. A step has thousands of `generate` calls; with a span for each call, a trace would be larger
// than the records and too large for receivers. The common span has the number of calls, their total time and the slowest call.
import type { SpanAttributes } from '../../base/spans.js';

export class CallTally {
  private calls = 0;
  private failed = 0;
  private inFlight = 0;
  private busySince = 0;
  private busyMs = 0;
  private slowestMs = 0;
  private lastEndedAt = 0;
  private readonly sums: Record<string, number> = {};

  /** `startedAt`: start of the first call, in milliseconds since 1970. */
  constructor(readonly startedAt: number) {}

  get endedAt(): number {
    return this.inFlight > 0 ? Date.now() : Math.max(this.lastEndedAt, this.startedAt);
  }

  async during<T>(call: () => Promise<T>, figures: (answer: T) => Record<string, number>): Promise<T> {
    const began = performance.now();
    if (this.inFlight++ === 0) this.busySince = began;
    this.calls += 1;
    try {
      const answer = await call();
      for (const [name, value] of Object.entries(figures(answer)))
        this.sums[name] = (this.sums[name] ?? 0) + value;
      return answer;
    } catch (error) {
      this.failed += 1;
      throw error;
    } finally {
      const now = performance.now();
      if (--this.inFlight === 0) this.busyMs += now - this.busySince;
      this.slowestMs = Math.max(this.slowestMs, now - began);
      this.lastEndedAt = Date.now();
    }
  }

  /** `busy_ms`: time in which at least one call was running. */
  attributes(): SpanAttributes {
    const busyMs = this.busyMs + (this.inFlight > 0 ? performance.now() - this.busySince : 0);
    return {
      'longhaul.calls': this.calls,
      'longhaul.failed_calls': this.failed,
      'longhaul.busy_ms': rounded(busyMs),
      'longhaul.slowest_ms': rounded(this.slowestMs),
      ...Object.fromEntries(Object.entries(this.sums).map(([name, value]) => [`longhaul.${name}`, value])),
    };
  }
}

function rounded(milliseconds: number): number {
  return Math.round(milliseconds * 10) / 10;
}
