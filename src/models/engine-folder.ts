// Gives the engine a folder that it can load. If config or weights must be changed first, this is a temporary folder with the changed config, and
// with links to the weights or one file of changed weights.
import { mkdir, rm, symlink, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import type { RopeScaling } from '../spec/run-spec.js';
import { BadModelFolder, type HfConfig, isMultimodal, languageConfig } from './hf-config.js';
import { modelConfig, settingsPlace, tensorShapes } from './model-config.js';
import { languageTensor, refuseOtherBase, writeMerged, type WriteProgress } from './merged-weights.js';
import {
  configFile,
  generationFile,
  hasByteOrderMark,
  indexFile,
  readJson,
  readJsonIfAny,
  singleFile,
  weightFiles,
  weightIndex,
} from './model-files.js';
import { findModel, type ModelSource } from './model-source.js';
import { type LoraPair, readAdapter } from './peft-adapter.js';
import { type StoredTensor, tensorsIn } from './tensor-file.js';

interface EngineFolderOptions extends WriteProgress {
  /** The run spec's; it replaces that of the config. */
  ropeScaling?: RopeScaling | undefined;
  /** Folder in which a temporary folder may be made, as big as the model. */
  scratch: string;
}

interface CheckedModel {
  source: ModelSource;
  config: HfConfig;
  /** Names of the weight files. */
  files: string[];
  /** Tensors by their names in the language model. */
  tensors: Map<string, StoredTensor>;
  pairs: Map<string, LoraPair>;
  /** True if the weight files have further tensors, or other names for them. */
  multimodal: boolean;
}

/**
 * Throws `BadModelFolder` if a weight file is damaged or missing, if the files have other tensors than the config says, or if an adapter is
 * not supported or does not fit.
 */
export async function checkModelFiles(folder: string): Promise<CheckedModel> {
  const source = await findModel(folder);
  const config = await readJson(join(source.base, configFile));
  const multimodal = isMultimodal(config);
  const nameOf = (name: string): string | null => (multimodal ? languageTensor(name) : name);
  const files = await weightFiles(source.base);
  const tensors = new Map<string, StoredTensor>();
  for (const file of files)
    for (const tensor of await tensorsIn(join(source.base, file))) {
      const name = nameOf(tensor.name);
      const other = name === null ? undefined : tensors.get(name);
      if (other)
        throw new BadModelFolder(
          `${tensor.file}: tensor ${tensor.name} is the same as ${other.name} in ${other.file}; remove one of them`,
        );
      if (name !== null) tensors.set(name, tensor);
    }
  await requireListed(source.base, files, tensors, nameOf);
  refuseOtherTensors(config, tensors, source.base, files);
  const pairs = new Map<string, LoraPair>();
  if (source.adapter)
    for (const [name, pair] of await readAdapter(source.path)) pairs.set(nameOf(name) ?? name, pair);
  refuseOtherBase(tensors, pairs);
  return { source, config, files, tensors, pairs, multimodal };
}

/** Throws if a shard lacks a tensor that the index lists in it: the shard is from another model. */
async function requireListed(
  folder: string,
  files: readonly string[],
  tensors: ReadonlyMap<string, StoredTensor>,
  nameOf: (name: string) => string | null,
): Promise<void> {
  if (files.length === 1 && files[0] === singleFile) return;
  for (const [name, file] of Object.entries(await weightIndex(folder))) {
    const inModel = nameOf(name);
    if (inModel === null || tensors.get(inModel)?.file === join(folder, file)) continue;
    throw new BadModelFolder(
      `${join(folder, file)}: tensor ${name} is missing, but ${indexFile} lists it: copy index and shards of one model`,
    );
  }
}

const head = 'lm_head.weight';
const readTypes: readonly string[] = ['F32', 'F16', 'BF16'];

/** Throws if a tensor of the model is missing or has another shape or type, or if a tensor is left over. */
function refuseOtherTensors(
  whole: HfConfig,
  tensors: ReadonlyMap<string, StoredTensor>,
  folder: string,
  files: readonly string[],
): void {
  const where = settingsPlace(whole, join(folder, configFile));
  const config = languageConfig(whole);
  const shapes = tensorShapes(config, where);
  const model = `a ${String(config['model_type'])} model with this ${configFile}`;
  for (const [name, shape] of shapes) {
    if (tensors.has(name)) continue;
    const place = join(folder, files.length === 1 ? (files[0] as string) : indexFile);
    throw new BadModelFolder(
      `${place}: tensor ${name}, [${shape.join(', ')}], is missing, and ${model} needs it`,
    );
  }
  for (const [name, { name: own, file, dtype, shape: found }] of tensors) {
    const isOldBuffer = name.endsWith('rotary_emb.inv_freq');
    if (isOldBuffer) continue;
    // The file of a tied model may also contain the head.
    const shape = shapes.get(name) ?? (name === head ? shapes.get('model.embed_tokens.weight') : undefined);
    if (shape === undefined) throw new BadModelFolder(`${file}: tensor ${own} does not belong to ${model}`);
    if (readTypes.includes(dtype) && found.join() === shape.join()) continue;
    throw new BadModelFolder(
      `${file}: tensor ${own} is ${dtype} [${found.join(', ')}]; expected F32, F16 or BF16 [${shape.join(', ')}]`,
    );
  }
}

/** Calls `use` with a folder that the engine can load; the folder may be gone after that. Throws `BadModelFolder`. */
export async function withEngineFolder<T>(
  folder: string,
  options: EngineFolderOptions,
  use: (path: string) => Promise<T>,
): Promise<T> {
  const model = await checkModelFiles(folder);
  const { base } = model.source;
  const config = modelConfig(model.config, options.ropeScaling, join(base, configFile));
  const isUsable = config === model.config && model.pairs.size === 0 && !(await hasMark(base));
  if (isUsable) return use(base);
  const path = resolve(options.scratch, `model.tmp-${process.pid}`);
  await rm(path, { recursive: true, force: true });
  await mkdir(path, { recursive: true });
  try {
    await writeJson(join(path, configFile), config);
    const generation = await readJsonIfAny(join(base, generationFile));
    if (generation) await writeJson(join(path, generationFile), generation);
    await addWeights(path, model, options);
    return await use(path);
  } catch (error) {
    // People know the folder that they named.
    if (error instanceof Error) error.message = error.message.replaceAll(path, base);
    throw error;
  } finally {
    await rm(path, { recursive: true, force: true });
  }
}

async function addWeights(path: string, model: CheckedModel, progress: WriteProgress): Promise<void> {
  const { source, files, tensors, pairs, multimodal } = model;
  if (multimodal || pairs.size > 0) {
    return writeMerged(join(path, singleFile), tensors, pairs, progress);
  }
  for (const file of files) await symlink(join(source.base, file), join(path, file));
  const isSingle = files.length === 1 && files[0] === singleFile;
  if (!isSingle) await writeJson(join(path, indexFile), { weight_map: await weightIndex(source.base) });
}

/** Whether one of the files that the engine parses begins with a byte order mark, which it does not accept. */
async function hasMark(folder: string): Promise<boolean> {
  for (const name of [configFile, generationFile, indexFile])
    if (await hasByteOrderMark(join(folder, name))) return true;
  return false;
}

async function writeJson(path: string, value: object): Promise<void> {
  await writeFile(path, JSON.stringify(value));
}
