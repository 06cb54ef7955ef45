// Observes the calls of a node's engine and environments: measures the time in which at least one is in flight and, if tracing is on, makes spans.
// Frequent calls of an episode share one span.
import { span } from '../../base/spans.js';
import type { FileEngine } from '../../engine/file-engine.js';
import type { Environment, EnvironmentBackend } from '../../environments/environment.js';

type Observers<T> = {
  [Name in keyof T]?: NonNullable<T[Name]> extends (...args: never[]) => Promise<infer Result>
    ? (call: () => Promise<Result>) => Promise<Result>
    : never;
};

/** Wraps the object: each method that is named in `observers` is called through its observer. */
export function observed<T extends object>(object: T, observers: Observers<T>): T {
  return new Proxy(object, {
    get(own, name) {
      const value: unknown = Reflect.get(own, name);
      if (typeof value !== 'function') return value;
      const observer = observers[name as keyof T] as ((call: () => unknown) => unknown) | undefined;
      // The method is called on the object itself, because a proxy has no private fields.
      const method = value.bind(own) as (...args: unknown[]) => unknown;
      return observer ? (...args: unknown[]) => observer(() => method(...args)) : method;
    },
  });
}

/** The time in which at least one engine verb or environment call is in flight: real work. The rest of a step is orchestration. */
export class BusyMeter {
  private inFlight = 0;
  private since = 0;
  private finishedMs = 0;

  /** Milliseconds so far. */
  get totalMs(): number {
    return this.finishedMs + (this.inFlight > 0 ? performance.now() - this.since : 0);
  }

  readonly during = async <T>(call: () => Promise<T>): Promise<T> => {
    if (this.inFlight++ === 0) this.since = performance.now();
    try {
      return await call();
    } finally {
      if (--this.inFlight === 0) this.finishedMs += performance.now() - this.since;
    }
  };
}

/** Counts calls that are too frequent for spans of their own. */
interface CallTallies {
  tallied<T>(
    name: string,
    call: () => Promise<T>,
    figures?: (answer: T) => Record<string, number>,
  ): Promise<T>;
}

const untraced: CallTallies = { tallied: (_, call) => call() };

/** Spans have the names of the engine protocol (docs/engine-protocol.md). Calls that take no time have no span. */
export function observedEngine(engine: FileEngine, { during }: BusyMeter, tracing = untraced): FileEngine {
  const timed =
    (verb: string) =>
    <T>(call: () => Promise<T>): Promise<T> =>
      span(`engine ${verb}`, () => during(call));
  return observed(engine, {
    setVocabulary: during,
    restart: (call) => span('engine restart', call),
    loadRandom: timed('load'),
    loadHf: timed('load_hf'),
    loadWeights: timed('load_weights'),
    saveWeights: timed('save_weights'),
    loadState: timed('load_state'),
    saveState: timed('save_state'),
    setReference: timed('set_reference'),
    exportHf: timed('export_hf'),
    generate: (call) =>
      tracing.tallied(
        'engine generate',
        () => during(call),
        ({ tokens }) => ({ tokens: tokens.length }),
      ),
    score: (call) => tracing.tallied('engine score', () => during(call)),
    update: timed('update'),
  });
}

export function observedBackend(
  backend: EnvironmentBackend,
  { during }: BusyMeter,
  tracing = untraced,
): EnvironmentBackend {
  const timed =
    (name: string) =>
    <T>(call: () => Promise<T>): Promise<T> =>
      tracing.tallied(`environment ${name}`, () => during(call));
  const environment = (opened: Environment): Environment =>
    observed(opened, { callTool: timed('call'), grade: timed('grade') });
  return observed(backend, {
    open: async (call) => environment(await timed('open')(call)),
    attach: async (call) => {
      const attached = await timed('attach')(call);
      return attached && environment(attached);
    },
  });
}
