// Finds the files of a Hugging Face folder that hold the model's weights, and computes the digest that identifies the model.
import { readFile, readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Digest } from '../spec/records/parts.js';
import { canonicalText } from '../store/records/canonical.js';
import { sha256File, sha256Hex } from '../base/sha256.js';
import { BadModelFolder, isObject } from './hf-config.js';

const indexFile = 'model.safetensors.index.json';
const singleFile = 'model.safetensors';
export const configFile = 'config.json';

/** Names of the safetensors files, sorted. Throws `BadModelFolder` if one is missing. */
export async function weightFiles(folder: string): Promise<string[]> {
  const names = new Set(await readdir(folder));
  // If both forms exist, the engine reads the single file, as transformers does. The other files must not count towards the digest.
  if (names.has(singleFile)) return [singleFile];
  if (!names.has(indexFile))
    throw new BadModelFolder(`${folder} has neither ${singleFile} nor ${indexFile}${insteadOf(names)}`);
  const shards = await indexedFiles(folder);
  const missing = shards.filter((name) => !names.has(name));
  if (missing.length === 0) return shards;
  throw new BadModelFolder(
    `${folder} has no ${missing.join(', ')}, which ${indexFile} lists: copy the missing shards, ${missing.length} of ${shards.length}`,
  );
}

async function indexedFiles(folder: string): Promise<string[]> {
  const path = join(folder, indexFile);
  const index = await readJson(path);
  const map = index['weight_map'];
  const files = isObject(map) ? Object.values(map) : [];
  if (files.length === 0) throw new BadModelFolder(`${path}: weight_map is missing or empty`);
  for (const file of files) {
    // A file name in a downloaded index must not lead out of its folder.
    if (typeof file === 'string' && /^[^/\\]+\.safetensors$/.test(file)) continue;
    throw new BadModelFolder(
      `${path}: weight_map names ${JSON.stringify(file)?.slice(0, 80)}; expected a .safetensors file of the same folder`,
    );
  }
  return [...new Set(files as string[])].sort();
}

function insteadOf(names: ReadonlySet<string>): string {
  const pickled = [...names].filter((name) => /\.(bin|pt|pth)$/.test(name));
  if (pickled.length > 0)
    return `; it has ${pickled[0]} instead: save the model as safetensors (transformers: model.save_pretrained(folder))`;
  if (names.has('adapter_config.json')) return ': it is a PEFT adapter; merge it into its base model first';
  return '';
}

/** sha256 over the contents of `config.json` and all weight files. Two folders with the same digest hold the same model. */
export async function modelFilesDigest(folder: string, signal?: AbortSignal): Promise<Digest> {
  const files = [];
  for (const path of [configFile, ...(await weightFiles(folder))]) {
    signal?.throwIfAborted();
    files.push({ path, ...(await sha256File(join(folder, path), signal)) });
  }
  return sha256Hex(canonicalText({ files }));
}

/** Reads a file with one JSON object. Throws `BadModelFolder`, which names the file. */
export async function readJson(path: string): Promise<Record<string, unknown>> {
  const value = await readJsonIfAny(path);
  if (value === null) throw new BadModelFolder(`there is no ${path}: a Hugging Face model folder has one`);
  return value;
}

/** Null if the file does not exist. */
export async function readJsonIfAny(path: string): Promise<Record<string, unknown> | null> {
  const text = await readTextIfAny(path);
  if (text === null) return null;
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new BadModelFolder(`${path} is not JSON: ${(error as Error).message}`, { cause: error });
  }
  if (!isObject(value)) throw new BadModelFolder(`${path} is not a JSON object`);
  return value;
}

/** Null if the file does not exist. */
export async function readTextIfAny(path: string): Promise<string | null> {
  return readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return null;
    throw new BadModelFolder(`${path} cannot be read: ${error.message}`, { cause: error });
  });
}

export async function isFolder(path: string): Promise<boolean> {
  return (await stat(path).catch(() => null))?.isDirectory() === true;
}
