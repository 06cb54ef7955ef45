// Measures how long this process does real work: the time in which at least one engine verb or environment call is in flight. The rest of a
// step's wall time is orchestration.
import type { FileEngine } from '../../engine/file-engine.js';
import type { PolicyEngine } from '../../engine/policy-engine.js';
import type { StateKeeper } from '../../policy/state-keeper.js';
import type { Environment, EnvironmentBackend } from '../../environments/environment.js';

export class BusyMeter {
  private inFlight = 0;
  private since = 0;
  private finishedMs = 0;

  /** Milliseconds so far in which at least one call was in flight. */
  get totalMs(): number {
    return this.finishedMs + (this.inFlight > 0 ? performance.now() - this.since : 0);
  }

  async during<T>(call: () => Promise<T>): Promise<T> {
    if (this.inFlight++ === 0) this.since = performance.now();
    try {
      return await call();
    } finally {
      if (--this.inFlight === 0) this.finishedMs += performance.now() - this.since;
    }
  }
}

export function meteredEngine(engine: FileEngine, meter: BusyMeter): FileEngine {
  return {
    ...meteredPolicy(engine, meter),
    held: (wanted) => engine.held(wanted),
    restart: () => engine.restart(),
    loadRandom: (model) => meter.during(() => engine.loadRandom(model)),
    loadHf: (model) => meter.during(() => engine.loadHf(model)),
    loadWeights: (model) => meter.during(() => engine.loadWeights(model)),
    saveWeights: (weights, path) => meter.during(() => engine.saveWeights(weights, path)),
    loadState: (state) => meter.during(() => engine.loadState(state)),
    saveState: (state, path) => meter.during(() => engine.saveState(state, path)),
    setReference: (from) => meter.during(() => engine.setReference(from)),
    exportHf: (request) => meter.during(() => engine.exportHf(request)),
    score: (request) => meter.during(() => engine.score(request)),
    update: (request, onProgress, signal) => meter.during(() => engine.update(request, onProgress, signal)),
  };
}

/** Meters an engine that only samples; its states are computed elsewhere, by a `StateKeeper`. */
export function meteredPolicy(engine: PolicyEngine, meter: BusyMeter): PolicyEngine {
  return {
    info: () => engine.info(),
    stats: () => engine.stats(),
    close: () => engine.close(),
    setVocabulary: (tokens) => meter.during(() => engine.setVocabulary(tokens)),
    generate: (...request) => meter.during(() => engine.generate(...request)),
  };
}

export function meteredKeeper(keeper: StateKeeper, meter: BusyMeter): StateKeeper {
  return {
    held: () => keeper.held(),
    weights: () => keeper.weights(),
    idle: () => keeper.idle(),
    forget: () => keeper.forget(),
    kept: (committed) => keeper.kept(committed),
    prune: (committed, spare) => keeper.prune(committed, spare),
    problemOf: (committed, signal) => keeper.problemOf(committed, signal),
    holdBase: (record, attempt) => meter.during(() => keeper.holdBase(record, attempt)),
    hold: (...wanted) => meter.during(() => keeper.hold(...wanted)),
    holdForUpdate: (...wanted) => meter.during(() => keeper.holdForUpdate(...wanted)),
    apply: (update) => meter.during(() => keeper.apply(update)),
    keep: (committed, attempt) => meter.during(() => keeper.keep(committed, attempt)),
    upload: (...upload) => meter.during(() => keeper.upload(...upload)),
  };
}

export function meteredBackend(backend: EnvironmentBackend, meter: BusyMeter): EnvironmentBackend {
  return {
    open: async (task, options, signal) =>
      meteredEnvironment(await meter.during(() => backend.open(task, options, signal)), meter),
    attach: async (...args) => {
      const attached = await meter.during(() => backend.attach?.(...args) ?? Promise.resolve(null));
      return attached && meteredEnvironment(attached, meter);
    },
    forgetTools: (envKey) => backend.forgetTools?.(envKey),
    releaseIdle: () => backend.releaseIdle?.() ?? Promise.resolve(),
    healthy: () => backend.healthy(),
    close: () => backend.close(),
  };
}

function meteredEnvironment(environment: Environment, meter: BusyMeter): Environment {
  return {
    tools: environment.tools,
    ...(environment.opening === undefined ? {} : { opening: environment.opening }),
    ...(environment.session ? { session: environment.session } : {}),
    callTool: (call, options) => meter.during(() => environment.callTool(call, options)),
    grade: (options) => meter.during(() => environment.grade(options)),
    close: () => environment.close(),
  };
}
