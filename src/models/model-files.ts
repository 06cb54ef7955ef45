// Reads the files of a Hugging Face folder as others write them: with a byte order mark, as pointers of Git LFS, or beside older files.
import { readFile, readdir, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { BadModelFolder, isObject } from './hf-config.js';

export const indexFile = 'model.safetensors.index.json';
export const singleFile = 'model.safetensors';
export const configFile = 'config.json';
export const generationFile = 'generation_config.json';

/** Names of the safetensors files, sorted. Throws `BadModelFolder` if one is missing, or if it is not clear which ones are meant. */
export async function weightFiles(folder: string): Promise<string[]> {
  const names = new Set(await readdir(folder));
  const hasSingle = names.has(singleFile);
  if (!names.has(indexFile)) {
    if (hasSingle) return [singleFile];
    throw new BadModelFolder(
      `${folder} has neither ${singleFile} nor ${indexFile}${insteadOf(names) || (await modelBelow(folder))}`,
    );
  }
  const shards = await indexedFiles(folder);
  const missing = shards.filter((name) => !names.has(name));
  if (hasSingle && !shards.includes(singleFile)) {
    // If transformers saves a smaller model into the same folder, it removes the old shards, but not their index.
    if (missing.length === shards.length) return [singleFile];
    const [first] = shards.filter((name) => names.has(name));
    throw new BadModelFolder(
      `${folder} has ${singleFile} and the shards that ${indexFile} lists, such as ${first}: these may be two different models; ` +
        `remove ${singleFile}, or the index and its shards, whichever is older`,
    );
  }
  if (missing.length === 0) return shards;
  throw new BadModelFolder(
    `${folder} has no ${missing.join(', ')}, which ${indexFile} lists: copy the missing shards, ${missing.length} of ${shards.length}`,
  );
}

/** The index of a folder's shards: the file of each tensor. */
export async function weightIndex(folder: string): Promise<Record<string, string>> {
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
  return map as Record<string, string>;
}

async function indexedFiles(folder: string): Promise<string[]> {
  return [...new Set(Object.values(await weightIndex(folder)))].sort();
}

function insteadOf(names: ReadonlySet<string>): string {
  const pickled = [...names].filter((name) => /\.(bin|pt|pth)$/.test(name));
  if (pickled.length > 0)
    return `; it has ${pickled[0]} instead: save the model as safetensors (transformers: model.save_pretrained(folder))`;
  const shard = [...names].find((name) => /^model-\d+-of-\d+\.safetensors$/.test(name));
  if (shard !== undefined) return `; it has ${shard}: copy the index of these shards too`;
  const gguf = [...names].find((name) => name.endsWith('.gguf'));
  if (gguf !== undefined)
    return `; it has ${gguf}, whose format is for inference: download the model’s own safetensors files`;
  const consolidated = [...names].find((name) => name.startsWith('consolidated'));
  if (consolidated !== undefined)
    return `; it has ${consolidated}, whose tensors have other names: download the files for transformers`;
  const other = [...names].find((name) => name.endsWith('.safetensors') && !name.startsWith('adapter_model'));
  return other === undefined ? '' : `; it has ${other}: if that is the whole model, name it ${singleFile}`;
}

/** Trainers save models in folders of their own, such as `checkpoint-100` and `actor/huggingface`. Empty if there is none. */
async function modelBelow(folder: string): Promise<string> {
  const entries = await readdir(folder, { withFileTypes: true });
  const found = [];
  for (const entry of entries.filter((one) => one.isDirectory())) {
    const below = join(folder, entry.name);
    const files = await readdir(below).catch((): string[] => []);
    const hasModel = files.some((name) =>
      [singleFile, indexFile, 'adapter_model.safetensors'].includes(name),
    );
    if (hasModel) found.push({ below, age: (await stat(below)).mtimeMs });
  }
  const [newest] = found.sort((a, b) => b.age - a.age);
  return newest ? `; ${newest.below} has a model: name that folder` : '';
}

/** Reads a file with one JSON object. Throws `BadModelFolder`, which names the file. */
export async function readJson(path: string): Promise<Record<string, unknown>> {
  const value = await readJsonIfAny(path);
  if (value === null) {
    const below = basename(path) === configFile ? await modelBelow(dirname(path)) : '';
    throw new BadModelFolder(`there is no ${path}: a Hugging Face model folder has one${below}`);
  }
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

/** The text without a byte order mark. Null if the file does not exist. */
export async function readTextIfAny(path: string): Promise<string | null> {
  const text = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return null;
    throw new BadModelFolder(`${path} cannot be read: ${error.message}`, { cause: error });
  });
  if (text === null) return null;
  refusePointer(text, path);
  return withoutMark(text);
}

/** The text without the byte order mark that some editors write. */
function withoutMark(text: string): string {
  return text.replace(/^\uFEFF/, '');
}

/** False if the file does not exist. */
export async function hasByteOrderMark(path: string): Promise<boolean> {
  const text = await readFile(path, 'utf8').catch(() => '');
  return text !== withoutMark(text);
}

/** Throws `BadModelFolder` if the file that begins with `start` is a pointer of Git LFS, which a clone without LFS has in its place. */
export function refusePointer(start: string, path: string): void {
  if (!start.startsWith('version https://git-lfs.github.com/spec/')) return;
  throw new BadModelFolder(
    `${path} is a Git LFS pointer instead of the file: run \`git lfs pull\` in ${dirname(path)}, or download the file`,
  );
}

export async function isFolder(path: string): Promise<boolean> {
  return (await stat(path).catch(() => null))?.isDirectory() === true;
}
