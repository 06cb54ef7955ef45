// What a tracker receives from a run: points, each complete and only once. They are made from records, so any point can be made again.

/** The figures of a committed step or of an evaluation. The same records give the same point to any reader at any time. */
export interface MetricPoint {
  /** Unique within a run: `step.12`, `eval.12.interval.0a1b2c3d`. */
  id: string;
  /** `global_step`. For an evaluation, the step whose resulting state was evaluated. */
  step: number;
  /** When the point's record was committed, ISO 8601. */
  at: string;
  /** Finite values by name (SkyRL's names, `ft/…`, `cost/…`). Names with `timing/` are in seconds. */
  values: Record<string, number>;
}

export const stepPointId = (step: number): string => `step.${step}`;

/** Contains the suite's digest too: the settings of a suite name may differ between a run and its fork. */
export const evaluationPointId = (step: number, suiteName: string, suite: string): string =>
  `eval.${step}.${suiteName}.${suite.slice(0, 8)}`;

/** The step of an id such as `step.12`; null for the ids of other points. */
export function stepOfId(id: string): number | null {
  const step = /^step\.(0|[1-9][0-9]*)$/.exec(id)?.[1];
  return step === undefined ? null : Number(step);
}

/** The points that a tracker holds. Steps arrive in order, without gaps; evaluations arrive when they are done. */
export class Delivered {
  private readonly evaluationIds: Set<string>;

  /** `step`: the last step that the tracker holds; null before the first. */
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
 * One tracker of one run. What the tracker already holds decides which points it receives next, so a point is not repeated if the process
 * is killed before it notes a write, or if the note is lost. The caller ensures that only one process writes to a run's tracker.
 */
export interface PointSink {
  /** Name in notices and metrics: `metrics.jsonl`, `tensorboard`, `wandb`. */
  readonly name: string;

  /** Asks the tracker which points it holds. Call it before the first write, and again after a failed one. */
  open(signal: AbortSignal): Promise<Delivered>;

  /** Resolves when the tracker has stored the points. After a failure, any number of the first ones may have arrived. */
  write(points: readonly MetricPoint[], signal: AbortSignal): Promise<void>;

  /** Ends what `open` began; `open` may be called again. */
  close(signal: AbortSignal): Promise<void>;
}

/** The tracker refuses points until a person fixes it: this is reported once, and tried again after long pauses. */
export class SinkRefused extends Error {
  override name = 'SinkRefused';
}
