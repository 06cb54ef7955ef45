// Wraps the engine and the environments of a node: each call gets a span, and frequent calls of an episode share one span.
import { span } from '../../base/spans.js';
import type { FileEngine } from '../../engine/file-engine.js';
import type { Environment, EnvironmentBackend } from '../../environments/environment.js';

/** Counts calls that are too frequent for their own spans. */
interface CallTallies {
  tallied<T>(
    name: string,
    call: () => Promise<T>,
    figures?: (answer: T) => Record<string, number>,
  ): Promise<T>;
}

/** Spans have the names of the engine protocol (docs/engine-protocol.md). Calls that take no time have no span. */
export function tracedEngine(engine: FileEngine, tracing: CallTallies): FileEngine {
  return {
    info: () => engine.info(),
    held: (wanted) => engine.held(wanted),
    stats: () => engine.stats(),
    close: () => engine.close(),
    setVocabulary: (tokens) => engine.setVocabulary(tokens),
    restart: () => span('engine restart', () => engine.restart()),
    loadRandom: (model) => span('engine load', () => engine.loadRandom(model)),
    loadHf: (model) => span('engine load_hf', () => engine.loadHf(model)),
    loadWeights: (model) => span('engine load_weights', () => engine.loadWeights(model)),
    saveWeights: (weights, path) => span('engine save_weights', () => engine.saveWeights(weights, path)),
    loadState: (state) => span('engine load_state', () => engine.loadState(state)),
    saveState: (state, path) => span('engine save_state', () => engine.saveState(state, path)),
    setReference: (from) => span('engine set_reference', () => engine.setReference(from)),
    exportHf: (request) => span('engine export_hf', () => engine.exportHf(request)),
    generate: (request, signal) =>
      tracing.tallied(
        'engine generate',
        () => engine.generate(request, signal),
        ({ tokens }) => ({ tokens: tokens.length }),
      ),
    score: (request) => tracing.tallied('engine score', () => engine.score(request)),
    update: (request, onProgress, signal) =>
      span('engine update', () => engine.update(request, onProgress, signal)),
  };
}

export function tracedBackend(backend: EnvironmentBackend, tracing: CallTallies): EnvironmentBackend {
  const { attach } = backend;
  return {
    open: async (task, options, signal) =>
      tracedEnvironment(
        await tracing.tallied('environment open', () => backend.open(task, options, signal)),
        tracing,
      ),
    ...(attach
      ? {
          attach: async (...args: Parameters<typeof attach>) => {
            const attached = await tracing.tallied('environment attach', () => attach.apply(backend, args));
            return attached && tracedEnvironment(attached, tracing);
          },
        }
      : {}),
    forgetTools: (envKey) => backend.forgetTools?.(envKey),
    releaseIdle: () => backend.releaseIdle?.() ?? Promise.resolve(),
    healthy: () => backend.healthy(),
    close: () => backend.close(),
  };
}

function tracedEnvironment(environment: Environment, tracing: CallTallies): Environment {
  return {
    tools: environment.tools,
    ...(environment.opening === undefined ? {} : { opening: environment.opening }),
    ...(environment.session ? { session: environment.session } : {}),
    callTool: (call, options) =>
      tracing.tallied('environment call', () => environment.callTool(call, options)),
    grade: (options) => tracing.tallied('environment grade', () => environment.grade(options)),
    close: () => environment.close(),
  };
}
