// FileEngine over a child process. The first call starts the process; the first call after its death starts a new one. A new process holds
// no state, so a call that needs one fails with `WrongState` until a state is loaded (ensurePolicy, R14).
import { awakeTimeout } from '../../base/awake-clock.js';
import { isObject } from '../../base/json.js';
import type { Digest } from '../../spec/records/parts.js';
import type { ExportRequest, HeldState, LoadedState, FileEngine, RandomModel, ReferenceSource, SavedFile, SavedState, ScoreRequest, StoredModel, UpdateRequest } from '../file-engine.js';
import { EngineError, type EngineInfo, type GenerateRequest, type GenerateResult, type UpdateProgress, type UpdateResult } from '../policy-engine.js';
import { type CallOptions, EngineProcess, type Reply } from './engine-process.js';
import type { FrameArray } from './frames.js';

/** Chooses the engine's device, and is notified of the device that it uses. */
export interface EngineDevice {
  /** LONGHAUL_DEVICE of the engine, unless it has begun on a GPU; undefined: this process's. */
  readonly wanted: string | undefined;
  /** Called at each start with the device: "cpu", or "cuda" for a GPU. */
  found(kind: string): void;
  /** The device is missing (`DeviceUnavailable`), or has computed other bits than a CPU would (`DeviceDiffers`). */
  failed(error: EngineError): void;
}

export interface NativeEngineOptions {
  /** Path of `longhaul-engine`. */
  binary: string;
  /** LONGHAUL_NUMERICS of the engine; default: this process's. */
  numerics?: string;
  /** Default: all cores that the process may use. */
  threads?: number;
  /** Default: the widest instruction set of the machine. */
  instructionSet?: 'avx512' | 'avx2' | 'scalar';
  /** Largest size of the KV cache; default 256 MiB. */
  kvCacheBytes?: number;
  log?: (line: string) => void;
  device?: EngineDevice;
  /** Lets tests make the engine die at chosen points. */
  testFaults?: boolean;
  /** The engine is killed if it answers nothing for this long while a call is open; default 30 s. */
  livenessMs?: number;
  /** The engine is killed if it answers but makes no progress for this long; default 10 min. */
  stallMs?: number;
}

/** A FileEngine with access to its process, for supervisors and for tests that kill it. */
export interface NativeEngine extends FileEngine {
  /** Id of the running process; null if none runs. */
  pid(): number | null;
  /**
   * For tests, needs `testFaults`. `abort`: dies now; `abort_after_update`: after the next update; `half_frame`: in the middle of this
   * reply. `hang` stops the whole engine, `stall` only its work.
   */
  injectFault(kind: 'abort' | 'abort_after_update' | 'half_frame' | 'hang' | 'stall'): Promise<void>;
}

const protocol = 2;
/** The engine version that these sources belong to; it must equal the one in `native/src/serve/version.h`. */
const engineVersion = '0.1.0';
/** Long, because for a GPU that is newer than the compiled kernels the driver compiles them at the first start. */
const startTimeoutMs = 180_000;

interface Started {
  process: EngineProcess;
  /** "cpu", or "cuda" for a GPU. */
  device: string;
  info: EngineInfo;
}

export function createNativeEngine(options: NativeEngineOptions): NativeEngine {
  let starting: Promise<Started> | null = null;
  let started: Started | null = null;
  let closed = false;

  /** Returns the running engine. Only one start runs at a time; after a failed start, the next call tries again. */
  function engine(): Promise<Started> {
    if (closed) return Promise.reject(new EngineError('EngineExited', 'The engine was closed.'));
    if (started?.process.alive) return Promise.resolve(started);
    starting ??= start(options, started && started.device !== 'cpu' ? started.device : options.device?.wanted)
      .then((fresh) => {
        options.device?.found(fresh.device);
        return fresh;
      })
      .catch(noticed)
      .then((fresh) => (started = fresh))
      .finally(() => (starting = null));
    return starting;
  }

  function noticed(error: unknown): never {
    const fails =
      error instanceof EngineError && (error.code === 'DeviceDiffers' || error.code === 'DeviceUnavailable');
    if (fails) options.device?.failed(error);
    throw error;
  }

  async function call(
    header: object,
    arrays?: readonly FrameArray[],
    callOptions?: CallOptions,
  ): Promise<Reply> {
    const running = started?.process.alive && !closed ? started : await engine();
    return running.process.call(header, arrays, callOptions).catch(noticed);
  }

  return {

    info: async () => (await engine()).info,

    async held(wanted?: { weights: true }) {
      const { header } = await call({ verb: 'held', ...wanted });
      return header['state'] === null ? null : heldState(header);
    },

    async loadRandom(model: RandomModel) {
      return loadedState((await call({ verb: 'load', ...model })).header);
    },

    async loadHf(model: StoredModel) {
      return loadedState((await call({ verb: 'load_hf', ...model })).header);
    },

    async loadWeights(model: StoredModel) {
      return loadedState((await call({ verb: 'load_weights', ...model })).header);
    },

    async saveWeights(weights: Digest, path: string) {
      const { header } = await call({ verb: 'save_weights', weights, path });
      return { weights: String(header['weights']), files: header['files'] as SavedFile[] };
    },

    async loadState(state: { path: string; base?: string }) {
      return loadedState((await call({ verb: 'load_state', ...state })).header);
    },

    async saveState(state: Digest, path: string): Promise<SavedState> {
      return savedState((await call({ verb: 'save_state', state, path })).header);
    },

    async setReference(from: ReferenceSource) {
      const source =
        from === null ? { from: 'none' } : 'path' in from ? { from: 'path', path: from.path } : { from: 'held' };
      const { header } = await call({ verb: 'set_reference', ...source });
      return digestOrNull(header['reference']);
    },

    async exportHf(request: ExportRequest) {
      return savedState((await call({ verb: 'export_hf', ...request })).header);
    },

    async setVocabulary(tokens: readonly Uint8Array[]) {
      await call({ verb: 'set_vocabulary' }, [
        { name: 'bytes', dtype: 'U8', data: new Uint8Array(Buffer.concat(tokens)) },
        { name: 'lengths', dtype: 'I32', data: Int32Array.from(tokens, ({ length }) => length) },
      ]);
    },

    async generate(request: GenerateRequest, signal?: AbortSignal): Promise<GenerateResult> {
      const { tokens, ...header } = request;
      const { header: reply, arrays } = await call({ verb: 'generate', ...header }, [tokenArray(tokens)], {
        signal,
      });
      return {
        tokens: Array.from(numbersOf(arrays, 'tokens')),
        logprobs: Array.from(numbersOf(arrays, 'logprobs')),
        finish: finishOf(reply['finish']),
      };
    },

    async score({ state, tokens, temperature }: ScoreRequest) {
      const { arrays } = await call({ verb: 'score', state, temperature }, [tokenArray(tokens)]);
      return Array.from(numbersOf(arrays, 'logprobs'));
    },

    async update(
      { batchPath, batchSha256, ...settings }: UpdateRequest,
      onProgress?: (progress: UpdateProgress) => void,
      signal?: AbortSignal,
    ): Promise<UpdateResult> {
      const { header } = await call(
        { verb: 'update', ...settings, batch_path: batchPath, batch_sha256: batchSha256 },
        [],
        {
          signal,
          onProgress: ({ done, total }) => onProgress?.({ done: Number(done), total: Number(total) }),
        },
      );
      return {
        state: stateOf(header),
        applied: header['applied'] as UpdateResult['applied'],
        metrics: header['metrics'] as UpdateResult['metrics'],
      };
    },

    async stats() {
      const { header } = await call({ verb: 'stats' });
      return header['stats'] as Record<string, number>;
    },

    async restart() {
      const running = await (starting ?? Promise.resolve(started)).catch(() => null);
      await running?.process.close();
    },

    async close() {
      closed = true;
      const running = await (starting ?? Promise.resolve(started)).catch(() => null);
      await running?.process.close();
    },

    pid: () => (started?.process.alive ? (started.process.pid ?? null) : null),

    async injectFault(kind) {
      await call({ verb: 'fault', kind });
    },
  };
}

async function start(options: NativeEngineOptions, device: string | undefined): Promise<Started> {
  const { threads, instructionSet, kvCacheBytes, device: _, ...processOptions } = options;
  const process = new EngineProcess({ ...processOptions, ...(device !== undefined && { device }) });
  const answered = awakeTimeout(() => process.kill('it did not answer the greeting "hello"'), startTimeoutMs);
  try {
    const { header } = await process.call({
      verb: 'hello',
      protocol,
      ...(threads !== undefined && { threads }),
      ...(instructionSet !== undefined && { instruction_set: instructionSet }),
      ...(kvCacheBytes !== undefined && { kv_cache_bytes: kvCacheBytes }),
    });
    if (header['version'] !== engineVersion)
      throw versionMismatch(options.binary, `is version ${String(header['version'])}`);
    return {
      process,
      device: (header['device'] as { kind: string }).kind,
      info: {
        incarnation: String(header['incarnation']),
        build: String(header['build']),
        numerics: header['numerics'] as EngineInfo['numerics'],
        gpu: gpuOf(header['device']),
        instructionSet: String(header['instruction_set']),
        threads: Number(header['threads']),
      },
    };
  } catch (error) {
    process.kill('its start failed');
    if (
      error instanceof EngineError &&
      error.code === 'VersionMismatch' &&
      !error.message.includes(options.binary)
    ) {
      throw versionMismatch(options.binary, error.message);
    }
    throw error;
  } finally {
    answered();
  }
}

function gpuOf(device: unknown): EngineInfo['gpu'] {
  const { kind, name, memory_bytes } = device as { kind: string; name?: string; memory_bytes?: number };
  return kind === 'cpu' ? null : { name: name ?? kind, memory_bytes: memory_bytes ?? 0 };
}

function versionMismatch(binary: string, what: string): EngineError {
  return new EngineError(
    'VersionMismatch',
    `The engine ${binary} does not belong to this release (${engineVersion}, protocol ${protocol}): ${what}. ` +
      'Build it again with: npm run build:native',
  );
}

function tokenArray(tokens: readonly number[]): FrameArray {
  return { name: 'tokens', dtype: 'I32', data: Int32Array.from(tokens) };
}

function stateOf(header: Record<string, unknown>): Digest {
  return String(header['state']);
}

function digestOrNull(value: unknown): Digest | null {
  return typeof value === 'string' ? value : null;
}

function heldState(header: Record<string, unknown>): HeldState {
  return {
    state: stateOf(header),
    weights: digestOrNull(header['weights']),
    reference: digestOrNull(header['reference']),
    lastStepId: digestOrNull(header['last_step_id']),
  };
}

function loadedState(header: Record<string, unknown>): LoadedState {
  return {
    state: stateOf(header),
    weights: String(header['weights']),
    memory: header['memory'] as LoadedState['memory'],
    architecture: header['architecture'] as LoadedState['architecture'],
    parameters: header['parameters'] as LoadedState['parameters'],
  };
}

function savedState(header: Record<string, unknown>): SavedState {
  return { state: stateOf(header), files: header['files'] as SavedFile[] };
}

function finishOf(finish: unknown): GenerateResult['finish'] {
  return finish === 'stop' || finish === 'stop_string' ? finish : 'length';
}

function numbersOf(arrays: Map<string, FrameArray>, name: string): FrameArray['data'] {
  const array = arrays.get(name);
  if (!array || !isObject(array))
    throw new EngineError('EngineExited', `The engine's reply has no array ${name}.`);
  return array.data;
}
