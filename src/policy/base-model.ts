// The model that a run begins with: weights drawn from its seed, or those of a Hugging Face folder. The folder is needed only once: the
// node that has it uploads the weights to the store. All other nodes, and every later restore, fetch them from there.
import { mkdir, readdir, rm, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import type { LoadedState, FileEngine, TrainedPart } from '../engine/file-engine.js';
import { EngineError } from '../engine/policy-engine.js';
import { BadModelFolder } from '../models/hf-config.js';
import { withEngineFolder } from '../models/engine-folder.js';
import { modelFilesDigest } from '../models/model-source.js';
import type { Digest } from '../spec/records/parts.js';
import type { RunRecord } from '../spec/records/run-records.js';
import type { RunSpec } from '../spec/run-spec.js';
import { canonicalText } from '../store/records/canonical.js';
import { sha256Hex } from '../base/sha256.js';
import type { ObjectStore } from '../store/objects/object-store.js';
import { readBaseIfAny, readState } from '../store/runs/run-records.js';
import { updateKey } from '../store/record-keys.js';
import { CorruptCheckpoint, Diverged } from '../store/record-errors.js';
import { fetchWeights, weightsExist, writeWeights } from '../store/files/weights.js';
import { keepNewest, removeLeftovers } from './leftovers.js';
import { fileExists } from './state-folder.js';
import type { WorkContext } from './attempt-scope.js';
import { weightsFileDigest } from './state-file.js';

interface BaseModelOptions {
  store: ObjectStore;
  engine: FileEngine;
  /** Folder on the node's disk. */
  folder: string;
  log: (message: string) => void;
}

/** Weights files kept on the node's disk; each is as big as a model. */
const weightsKept = 2;

/**
 * The `base_model` of `run.json`, which identifies how state 0 is made. `files`: the model folder's digest; null if the weights are drawn
 * from the seed.
 */
export function baseModelDigest(
  { seed, model }: Pick<RunSpec, 'seed' | 'model'>,
  files: Digest | null,
): Digest {
  const { init, architecture, initializer_range, lora, moments, rope_scaling, served } = model;
  if (served)
    return sha256Hex(canonicalText({ served: served.name, rank: served.rank, seed: served.seed ?? seed }));
  const trained = {
    ...(lora ? { lora } : {}),
    ...(moments === undefined || moments === 'fp32' ? {} : { moments }),
  };
  if (files === null)
    return sha256Hex(canonicalText({ init, architecture, initializer_range, seed, ...trained }));
  const extended = rope_scaling ? { rope_scaling } : {};
  return sha256Hex(
    canonicalText({ files, ...extended, ...trained, ...(lora ? { seed: lora.seed ?? seed } : {}) }),
  );
}

/** Callers must hold the engine's lock exclusively. */
export class BaseModel {
  constructor(private readonly options: BaseModelOptions) {}

  async hold(record: RunRecord, attempt: WorkContext): Promise<LoadedState> {
    const { engine } = this.options;
    const { architecture, initializer_range, path } = record.spec.model;
    const trained = trainedPart(record);
    if (architecture)
      return engine.loadRandom({ architecture, initializer_range, seed: record.seed, ...trained });
    const weights = await this.recordedWeights(record);
    if (weights !== null && (await weightsExist(this.options.store, weights)))
      return this.loadStored(weights, trained, attempt);
    return this.loadFolder(path as string, record, trained, attempt);
  }

  /** Loads the model into the engine, and compares it with the record of step 0. */
  async restore(record: RunRecord, attempt: WorkContext): Promise<void> {
    const { run } = record;
    const held = await this.hold(record, attempt);
    const base = await readState(this.options.store, run, 0);
    if (held.state !== base) {
      throw new Diverged(
        `the base model of ${run} was made again as state ${held.state}, but step 0 records ${base}`,
        { key: updateKey(run, 0), stored: base, computed: held.state },
      );
    }
  }

  /** Uploads a folder's weights to the store, unless they are there. The engine must hold them. */
  async keep({ spec }: RunRecord, { weights }: LoadedState, attempt: WorkContext): Promise<void> {
    if (!spec.model.architecture) await this.keepWeights(weights, attempt);
  }

  /** Loads weights of the run from the store into the engine, with fresh moments. */
  async holdStored(weights: Digest, record: RunRecord, attempt: WorkContext): Promise<void> {
    await this.loadStored(weights, trainedPart(record), attempt);
  }

  /** Uploads weights to the store, unless they are there. The engine must hold them. */
  async keepWeights(weights: Digest, attempt: WorkContext): Promise<void> {
    const { store, engine } = this.options;
    if (await weightsExist(store, weights)) return;
    await this.makeRoom();
    const path = this.path(weights);
    if (!(await fileExists(path))) await engine.saveWeights(weights, path);
    attempt.signal.throwIfAborted();
    await writeWeights(store, weights, path, {
      signal: attempt.signal,
      onProgress: (bytes) => attempt.progress({ uploading: 'the weights', bytes }),
    });
  }

  /**
   * Prepares `loadState` for a state file of the run. With LoRA, that file lacks the base weights. If the engine does not hold them, they
   * are drawn from the seed, loaded from the folder, or fetched from the store. If they are fetched, the result names their file.
   */
  async under(record: RunRecord, attempt: WorkContext): Promise<{ base?: string }> {
    const { engine, store } = this.options;
    const { lora, architecture } = record.spec.model;
    if (!lora) return {};
    const weights = await this.recordedWeights(record);
    if (weights !== null && (await engine.held())?.weights === weights) return {};
    if (weights !== null && !architecture && (await weightsExist(store, weights)))
      return { base: await this.file(weights, attempt) };
    await this.hold(record, attempt);
    return {};
  }

  /** True if a weights file on this disk is damaged. The file is then removed, and fetched again when it is next needed. */
  async forgetIfDamaged(record: RunRecord, path: string): Promise<boolean> {
    const found = await weightsFileDigest(path).catch((error: Error) => {
      if (error.name === 'BadTensorFile') return null;
      throw error;
    });
    if (found === (await this.recordedWeights(record))) return false;
    this.options.log(`${path} is damaged: it is fetched again`);
    await rm(path, { force: true });
    return true;
  }

  private async loadFolder(
    path: string,
    record: RunRecord,
    trained: TrainedPart,
    { signal, progress }: WorkContext,
  ): Promise<LoadedState> {
    progress({ loading: path });
    const fix = 'copy it to this machine, or mount it: only the first node of a run needs it';
    const files = await modelFilesDigest(path, signal).catch((error: Error) => {
      throw error.name === 'BadModelFolder' ? new BadModelFolder(`${error.message}; ${fix}`) : error;
    });
    if (baseModelDigest({ ...record.spec, seed: record.seed }, files) !== record.base_model)
      throw new BadModelFolder(
        `the model in ${path} is not the one that run "${record.run}" was started with: restore its files, ` +
          'or start a run with a new name from the changed model',
      );
    await this.makeRoom();
    const prepared = {
      ropeScaling: record.spec.model.rope_scaling,
      scratch: join(this.options.folder, 'weights'),
      signal,
      onProgress: (bytes: number) => progress({ preparing: path, bytes }),
    };
    const load = (folder: string): Promise<LoadedState> =>
      this.options.engine.loadHf({ path: folder, ...trained });
    return withEngineFolder(path, prepared, load).catch((error: unknown) => {
      const isTheFolders = error instanceof EngineError && error.code === 'BadFile';
      throw isTheFolders ? new BadModelFolder(error.message, { cause: error }) : error;
    });
  }

  /** If the file on this disk is damaged, it is fetched again, once. */
  private async loadStored(
    weights: Digest,
    trained: TrainedPart,
    attempt: WorkContext,
  ): Promise<LoadedState> {
    const { engine, log } = this.options;
    for (const isLast of [false, true]) {
      const path = await this.file(weights, attempt);
      const loaded = await engine.loadWeights({ path, ...trained }).catch((error: unknown) => {
        if (error instanceof EngineError && error.code === 'BadFile') return error;
        throw error;
      });
      if (!(loaded instanceof EngineError) && loaded.weights === weights) return loaded;
      const problem =
        loaded instanceof EngineError ? loaded.message : `it holds the weights ${loaded.weights}`;
      await rm(path, { force: true });
      if (isLast) throw new CorruptCheckpoint(path, null, problem);
      log(`${path} is not usable (${problem}): fetching it again`);
    }
    throw new Error('not reached');
  }

  /** Path of the weights' file on this disk; fetches the file if it is missing. */
  private async file(weights: Digest, { signal, progress }: WorkContext): Promise<string> {
    const path = this.path(weights);
    if (await fileExists(path)) {
      // A file's modification time shows when it was last used.
      await utimes(path, new Date(), new Date());
      return path;
    }
    await this.makeRoom();
    await fetchWeights(this.options.store, weights, path, {
      signal,
      onProgress: (fetched) => progress({ restoring: 'the base model', fetched }),
    });
    return path;
  }

  private async recordedWeights({ run }: RunRecord): Promise<Digest | null> {
    return (await readBaseIfAny(this.options.store, run))?.identity.weights ?? null;
  }

  private path(weights: Digest): string {
    return join(this.options.folder, 'weights', `${weights}.safetensors`);
  }

  /** Removes the files unused for longest, so that there is room for one more. */
  private async makeRoom(): Promise<void> {
    const folder = join(this.options.folder, 'weights');
    await mkdir(folder, { recursive: true });
    await removeLeftovers(folder);
    const files = (await readdir(folder)).filter((name) => name.endsWith('.safetensors'));
    await keepNewest(
      files.map((name) => join(folder, name)),
      weightsKept - 1,
    );
  }
}

/** The adapters' first values are drawn from the run's seed, unless the spec names another seed. */
function trainedPart({ seed, spec }: RunRecord): TrainedPart {
  const { lora, moments } = spec.model;
  return {
    ...(lora ? { lora: { seed, ...lora } } : {}),
    ...(moments === undefined || moments === 'fp32' ? {} : { moments }),
  };
}
