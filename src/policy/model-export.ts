// Exports a state as a folder that other programs can open. The engine writes config and weights; this module adds the tokenizer's files.
// The folder appears only when it is complete.
import { mkdir, open, rename, rm, rmdir, stat, writeFile } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import type { ExportRequest, FileEngine } from '../engine/file-engine.js';
import { loadChatTemplate } from '../episode/chat-template.js';
import { loadTokenizer } from '../episode/tokenizer.js';
import type { Digest } from '../spec/records/parts.js';
import { readTokenizerSettings, type TokenizerSettings } from '../models/model-folder.js';
import { readJsonIfAny } from '../models/model-files.js';
import { removeLeftovers } from './leftovers.js';

const usualPadding = '<|endoftext|>';

interface ModelToExport extends Omit<ExportRequest, 'path' | 'eos_tokens'> {
  /** Path of the folder to create; it must not exist. */
  to: string;
  /** Texts of `tokenizer.json` and of the chat template. */
  tokenizer: string;
  template: string;
  /** Ids of further tokens that end a text, as the model's own `generation_config.json` has them. */
  eosTokens: readonly number[];
  /** The run's own setting; null if the model's config decides. */
  maxPositionEmbeddings: number | null;
}

export interface ExportedModel {
  path: string;
  state: Digest;
  /** Names, in order, and sizes in bytes. */
  files: { path: string; size: number }[];
}

/**
 * Throws if the folder exists or cannot be created. Check this first: restoring a state takes minutes, and the engine's error would be less
 * clear.
 */
export async function requireNewFolder(to: string): Promise<void> {
  const path = resolve(to);
  if (await exists(path)) throw new Error(`${path} exists already: remove it, or name a new folder`);
  const trial = `${path}.tmp-${process.pid}`;
  try {
    await mkdir(dirname(path), { recursive: true });
    await mkdir(trial);
    await rmdir(trial);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? String(error);
    throw new Error(`${path} cannot be created (${code}): name a folder inside one that you may write to`, {
      cause: error,
    });
  }
}

/** Exports the state that the engine holds. Throws if the folder exists. */
export async function exportModel(
  engine: Pick<FileEngine, 'exportHf'>,
  model: ModelToExport,
): Promise<ExportedModel> {
  const path = resolve(model.to);
  await requireNewFolder(path);
  await removeLeftovers(dirname(path), `${basename(path)}.tmp-`);
  const unfinished = `${path}.tmp-${process.pid}`;
  const { state, dtype, adapters, base_model } = model;
  const tokenizer = loadTokenizer(model.tokenizer);
  const { endOfTurn } = loadChatTemplate(model.template, tokenizer);
  try {
    const exported = await engine.exportHf({
      ...{ state, path: unfinished, dtype, adapters },
      // Programs stop generating at the tokens that end a turn of this chat template, and those that end a text.
      eos_tokens: [...new Set([endOfTurn, ...model.eosTokens])],
      ...(base_model === undefined ? {} : { base_model }),
    });
    const added = await addTokenizer(unfinished, model, tokenizer.decode([endOfTurn]));
    await sync(unfinished);
    await rename(unfinished, path);
    await sync(dirname(path));
    const names = new Set([...exported.files.map((file) => basename(file.path)), ...added]);
    return { path, state, files: await sizes(path, [...names].sort()) };
  } finally {
    await rm(unfinished, { recursive: true, force: true });
  }
}

/** Returns the names of the files written. */
async function addTokenizer(folder: string, model: ModelToExport, endOfTurn: string): Promise<string[]> {
  const settings = await tokenizerSettings(folder, model);
  const files: Record<string, string> = {
    'tokenizer.json': model.tokenizer,
    'chat_template.jinja': model.template,
    'tokenizer_config.json': jsonText({
      tokenizer_class: 'PreTrainedTokenizerFast',
      eos_token: endOfTurn,
      clean_up_tokenization_spaces: false,
      ...settings,
    }),
  };
  for (const [name, text] of Object.entries(files)) await writeDurably(join(folder, name), text);
  return Object.keys(files);
}

/** Settings from the model's own folder, if it still exists; other values come from the tokenizer and the model's config. */
async function tokenizerSettings(folder: string, model: ModelToExport): Promise<TokenizerSettings> {
  const { base_model: origin } = model;
  const own = origin === undefined ? {} : await readTokenizerSettings(origin).catch(() => ({}));
  const pad = paddingOf(model.tokenizer);
  const config = await readJsonIfAny(join(folder, 'config.json'));
  const longest = config?.['max_position_embeddings'] ?? model.maxPositionEmbeddings;
  return {
    ...(pad === null ? {} : { pad_token: pad }),
    ...(typeof longest === 'number' ? { model_max_length: longest } : {}),
    ...own,
  };
}

/** The padding token in `tokenizer.json`, else the usual one of Qwen models if the tokenizer has it. */
function paddingOf(tokenizer: string): string | null {
  const { padding, added_tokens = [] } = JSON.parse(tokenizer) as {
    padding?: { pad_token?: unknown } | null;
    added_tokens?: { content?: unknown }[];
  };
  if (typeof padding?.pad_token === 'string') return padding.pad_token;
  return added_tokens.some(({ content }) => content === usualPadding) ? usualPadding : null;
}

async function writeDurably(path: string, text: string): Promise<void> {
  await writeFile(path, text, { flush: true });
}

async function sync(folder: string): Promise<void> {
  const handle = await open(folder);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

async function sizes(folder: string, names: string[]): Promise<ExportedModel['files']> {
  return Promise.all(names.map(async (path) => ({ path, size: (await stat(join(folder, path))).size })));
}

async function exists(path: string): Promise<boolean> {
  return (await stat(path).catch(() => null)) !== null;
}

function jsonText(value: object): string {
  return `${JSON.stringify(value, null, 2)}\n`;
}
