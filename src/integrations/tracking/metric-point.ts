// What a tracker gets of a run: points, each whole and once. They are projections of records, so any of them can be made again.

/** A committed step's figures, or an evaluation's. The same records give the same point, for any reader at any time. */
export interface MetricPoint {
  /** Unique within a run: `step.12`, `eval.12.interval.0a1b2c3d`. */
  id: string;
  /** `global_step`: the state after it is what an evaluation measured. */
  step: number;
  /** When its record was committed, ISO 8601. */
  at: string;
  /** By name (SkyRL's, `ft/…`, `cost/…`); finite. Seconds where the name says `timing/`. */
  values: Record<string, number>;
}

export const stepPointId = (step: number): string => `step.${step}`;

/** A suite's name alone does not identify it: settings may have changed between a run and its fork. */
export const evaluationPointId = (step: number, suiteName: string, suite: string): string =>
  `eval.${step}.${suiteName}.${suite.slice(0, 8)}`;

/** Step of `step.12`; null for another point's id. */
export function stepOfId(id: string): number | null {
  const step = /^step\.(0|[1-9][0-9]*)$/.exec(id)?.[1];
  return step === undefined ? null : Number(step);
}

/** Which points a tracker holds. Steps arrive in order and without a gap; evaluations when they are done. */
export class Delivered {
  private readonly evaluationIds: Set<string>;

  /** `step`: the last one; null before the first. */
  constructor(
    public step: number | null = null,
    evaluations: Iterable<string> = [],
  ) {
    this.evaluationIds = new Set(evaluations);
  }

  has(id: string): boolean {
    const step = stepOfId(id);
    return step === null ? this.evaluationIds.has(id) : this.step !== null && step <= this.step;
  }

  add(id: string): void {
    const step = stepOfId(id);
    if (step === null) this.evaluationIds.add(id);
    else this.step = Math.max(step, this.step ?? step);
  }

  get evaluations(): readonly string[] {
    return [...this.evaluationIds];
  }

  get count(): number {
    return this.evaluationIds.size;
  }
}

/**
 * One tracker of one run. Its contents decide what it is given next, so that neither a kill between a write and its note nor a lost note
 * doubles a point. The caller ensures that a run has one writer for each tracker.
 */
export interface PointSink {
  /** In notices and metrics: `metrics.jsonl`, `tensorboard`, `wandb`. */
  readonly name: string;

  /** Asks the tracker which points it holds. Before the first write, and again after a failed one. */
  open(signal: AbortSignal): Promise<Delivered>;

  /** Resolves when the tracker has stored them. After a failure any number of them, the first ones, may have arrived. */
  write(points: readonly MetricPoint[], signal: AbortSignal): Promise<void>;

  /** Ends what `open` began; `open` may follow. */
  close(signal: AbortSignal): Promise<void>;
}

/** The tracker will refuse until a person fixes it: reported once, tried again seldom. */
export class SinkRefused extends Error {
  override name = 'SinkRefused';
}
