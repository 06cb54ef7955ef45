// Timed parts of an activity, for tracers. Without a tracer they cost a comparison: nothing is measured.

export type SpanAttributes = Record<string, string | number | boolean>;

/** A part that has begun. */
export interface OpenSpan {
  /** Spans that begin in `work` are parts of this one. */
  during<T>(work: () => Promise<T>): Promise<T>;
  /** Only the first call counts. */
  end(attributes?: SpanAttributes): void;
}

export interface Tracer {
  begin(name: string): OpenSpan;
}

let installed: Tracer | null = null;

/** Called once in a process, before anything is traced. */
export function installTracer(tracer: Tracer): void {
  installed = tracer;
}

const untraced: OpenSpan = { during: (work) => work(), end: () => undefined };

export function beginSpan(name: string): OpenSpan {
  return installed?.begin(name) ?? untraced;
}

export function span<T>(name: string, work: () => Promise<T>): Promise<T> {
  return installed === null ? work() : spanned(installed.begin(name), work);
}

async function spanned<T>(open: OpenSpan, work: () => Promise<T>): Promise<T> {
  try {
    return await open.during(work);
  } finally {
    open.end();
  }
}
