// Reads what a run stores of its model's files besides the weights: the texts of tokenizer and chat template, and the digest of the model
// folder. Once they are stored, the run no longer needs these files.
import { readFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { baseModelDigest } from './base-model.js';
import { loadChatTemplate } from '../episode/chat-template.js';
import { loadTokenizer } from '../episode/tokenizer.js';
import { BadModelFolder } from '../models/hf-config.js';
import { modelFilesDigest } from '../models/model-files.js';
import {
  type ModelFolder,
  readModelFolder,
  refuseLargerVocabulary,
  selfContained,
  templateInConfig,
} from '../models/model-folder.js';
import { InvalidSpec } from '../spec/invalid-spec.js';
import type { Digest } from '../spec/records/parts.js';
import type { ModelSpec, RunSpec } from '../spec/run-spec.js';

/** Many models have their chat template in it. */
const configName = 'tokenizer_config.json';

interface ModelAssets {
  baseModel: Digest;
  tokenizer: string;
  template: string;
}

/** Throws `InvalidSpec` if a file is missing, damaged, or does not fit the others. */
export async function takeUpModel(spec: RunSpec, signal?: AbortSignal): Promise<ModelAssets> {
  const { model } = spec;
  const folder = await named('model.path', async () =>
    model.path === undefined ? null : readModelFolder(model.path),
  );
  const shape = folder?.outline ?? model.architecture;
  const tokenizer = await readAsset(model.tokenizer, 'model.tokenizer');
  const template = await readTemplate(model, folder);
  refuseUnusable(model, tokenizer, template);
  await named('model.tokenizer', async () => {
    if (shape) refuseLargerVocabulary(tokenizer, shape, model.tokenizer);
  });
  if (folder) refuseLongerEpisodes(spec, folder);
  const files = await named('model.path', async () => folder && modelFilesDigest(folder.path, signal));
  return { baseModel: baseModelDigest(spec, files), tokenizer, template };
}

/** Text that a run stores as its chat template. Throws if it cannot be read. */
export async function templateText(model: ModelSpec): Promise<string> {
  return readTemplate(model, model.path === undefined ? null : await readModelFolder(model.path));
}

/** Reads the chat template from the file that the spec names, else from the model folder. */
async function readTemplate(model: ModelSpec, folder: ModelFolder | null): Promise<string> {
  const path = model.chat_template;
  if (!folder)
    return basename(path) === configName ? templateFromConfig(path) : readAsset(path, 'model.chat_template');
  const isOwn = path === join(folder.path, 'chat_template.jinja');
  if (isOwn && folder.chatTemplate === null)
    throw new InvalidSpec([
      {
        path: 'model.chat_template',
        problem: `${folder.path} has no chat_template.jinja, and its tokenizer_config.json has no chat_template: it may be a base model`,
        fix: 'name a Jinja chat template that uses only special tokens of its tokenizer',
      },
    ]);
  const text = isOwn ? (folder.chatTemplate as string) : await readAsset(path, 'model.chat_template');
  return selfContained(text, folder.texts);
}

async function templateFromConfig(path: string): Promise<string> {
  const template = await named('model.chat_template', () => templateInConfig(path));
  if (template !== null) return template;
  const problem = `${path} has no chat_template`;
  const fix = 'name a Jinja chat template';
  throw new InvalidSpec([{ path: 'model.chat_template', problem, fix }]);
}

async function readAsset(path: string, key: string): Promise<string> {
  return readFile(path, 'utf8').catch((error: Error) => {
    throw new InvalidSpec([
      { path: key, problem: `${path} cannot be read: ${error.message}`, fix: 'name a file that exists' },
    ]);
  });
}

/** Loads tokenizer and template once, so that a broken file is refused here and not later on a node. */
function refuseUnusable(model: ModelSpec, tokenizerText: string, templateText: string): void {
  try {
    loadChatTemplate(templateText, loadTokenizer(tokenizerText));
  } catch (error) {
    throw new InvalidSpec([
      {
        path: 'model',
        problem: `${model.tokenizer} and ${model.chat_template} do not load: ${(error as Error).message}`,
        fix: 'give a Hugging Face tokenizer.json and the Jinja chat template that belongs to it',
      },
    ]);
  }
}

function refuseLongerEpisodes({ generator }: RunSpec, { path, outline }: ModelFolder): void {
  const longest = outline.max_position_embeddings;
  if (generator.max_sequence_length <= longest) return;
  throw new InvalidSpec([
    {
      path: 'generator.max_sequence_length',
      problem: `${generator.max_sequence_length} is more than ${longest}, the max_position_embeddings of ${path}`,
      fix: 'lower it, or extend the model’s context with YaRN in its config.json (rope_parameters)',
    },
  ]);
}

/** Turns the problem of a model file into an `InvalidSpec` error at the file's key in the spec. */
async function named<T>(key: string, read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (error) {
    if (!(error instanceof BadModelFolder)) throw error;
    throw new InvalidSpec([{ path: key, problem: error.message, fix: '' }]);
  }
}
