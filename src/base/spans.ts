// Timed parts of an activity, for tracers. Without a tracer, nothing is measured.

export type SpanAttributes = Record<string, string | number | boolean>;

/** A span that has begun. */
export interface OpenSpan {
  /** Spans that begin during `work` become children of this one. */
  during<T>(work: () => Promise<T>): Promise<T>;
  /** Later calls are ignored. */
  end(attributes?: SpanAttributes): void;
}

export interface Tracer {
  begin(name: string): OpenSpan;
}

let installed: Tracer | null = null;

/** Call at most once in a process, before the first span. */
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
