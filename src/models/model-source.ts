// Finds a model's files: in the named folder and, if that is a PEFT adapter, in the folder of its base model.
import { readdir } from 'node:fs/promises';
import { join, relative, resolve } from 'node:path';
import { sha256File, sha256Hex } from '../base/sha256.js';
import type { Digest } from '../spec/records/parts.js';
import { canonicalText } from '../store/records/canonical.js';
import { BadModelFolder } from './hf-config.js';
import { configFile, indexFile, isFolder, readJson, singleFile, weightFiles } from './model-files.js';

export const adapterConfigFile = 'adapter_config.json';
export const adapterFile = 'adapter_model.safetensors';

export interface ModelSource {
  /** Absolute path of the named folder, which contains the adapter if there is one. */
  path: string;
  /** Absolute path of the folder with `config.json` and the weights of the whole model. */
  base: string;
  /** True if an adapter is merged into the weights. */
  adapter: boolean;
}

/** Throws `BadModelFolder`, also if the folder does not say whether its adapter belongs to the model. */
export async function findModel(folder: string): Promise<ModelSource> {
  const path = resolve(folder);
  if (!(await isFolder(path)))
    throw new BadModelFolder(
      `there is no folder ${path}: name a Hugging Face model folder, with config.json and safetensors files`,
    );
  const names = new Set(await readdir(path));
  const parts = [adapterConfigFile, adapterFile, 'adapter_model.bin'].filter((name) => names.has(name));
  if (parts.length === 0) return { path, base: path, adapter: false };
  for (const name of [adapterConfigFile, adapterFile])
    if (!names.has(name))
      throw new BadModelFolder(
        `${path} has ${parts.join(' and ')} of a PEFT adapter, but no ${name}: ` +
          (parts.includes('adapter_model.bin')
            ? 'save the adapter as safetensors (PEFT: model.save_pretrained(folder))'
            : 'copy it too, or remove the adapter’s files to begin without them'),
      );
  return { path, base: await baseOf(path, names), adapter: true };
}

async function baseOf(path: string, names: ReadonlySet<string>): Promise<string> {
  const file = join(path, adapterConfigFile);
  const named = (await readJson(file))['base_model_name_or_path'] ?? null;
  const hasWeights = names.has(singleFile) || names.has(indexFile);
  const base = typeof named === 'string' && named !== '' ? resolve(path, named) : null;
  if (base !== null && (base === path || !hasWeights) && (await isFolder(base)))
    return requireWhole(base, path);
  const shown = `${file}: base_model_name_or_path is ${named === null ? 'missing' : JSON.stringify(named)}`;
  if (!hasWeights)
    throw new BadModelFolder(
      base === null
        ? `${shown}: write the path of the base model's folder there`
        : `${shown}, but there is no folder ${base}: ${howToGet(String(named), base)}`,
    );
  throw new BadModelFolder(
    `${shown}, but ${path} has weights of its own too: write "." there to add the adapter to these weights; ` +
      `if they contain it already, remove ${adapterConfigFile} and ${adapterFile}`,
  );
}

/** How to get the base model that an adapter names by its path, or by its name on the Hugging Face hub, as `Qwen/Qwen3-0.6B`. */
function howToGet(named: string, base: string): string {
  const write = "write the path of the base model's folder into base_model_name_or_path";
  if (!/^[\w-][\w.-]*(\/[\w-][\w.-]*)?$/.test(named)) return write;
  return `nothing is downloaded by a run. If it is a model of the hub, run \`hf download ${named} --local-dir ${base}\`, or ${write}`;
}

async function requireWhole(base: string, path: string): Promise<string> {
  if (base === path || !(await readdir(base)).includes(adapterConfigFile)) return base;
  throw new BadModelFolder(
    `${join(path, adapterConfigFile)}: base_model_name_or_path is ${base}, which is a PEFT adapter itself: ` +
      'adapters on adapters are not supported; merge that one into its base first',
  );
}

/**
 * sha256 over the contents of `config.json` and all weight files, and of the adapter's files if there is one. Two folders with the same
 * digest hold the same model.
 */
export async function modelFilesDigest(folder: string, signal?: AbortSignal): Promise<Digest> {
  const { path, base, adapter } = await findModel(folder);
  const files = [];
  const inBase = [configFile, ...(await weightFiles(base))].map((name) => join(base, name));
  const ofAdapter = adapter ? [adapterConfigFile, adapterFile].map((name) => join(path, name)) : [];
  for (const file of [...inBase, ...ofAdapter]) {
    signal?.throwIfAborted();
    const name = relative(inBase.includes(file) ? base : path, file);
    files.push({ path: name, ...(await sha256File(file, signal)) });
  }
  return sha256Hex(canonicalText({ files }));
}
