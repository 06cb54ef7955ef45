// Reads what a run stores of its model's files besides the weights: the texts of tokenizer and chat template, and the digest of the model
// folder. Once they are stored, the run no longer needs these files.
import { basename, dirname, join } from 'node:path';
import { baseModelDigest } from './base-model.js';
import {
  type ChatTemplate,
  loadChatTemplate,
  renderedVariables,
  systemRefusal,
} from '../episode/chat-template.js';
import { loadTokenizer, type Tokenizer } from '../episode/tokenizer.js';
import { formatOfTemplate, type ToolFormat, toolFormat } from '../episode/tool-formats/tool-format.js';
import { BadModelFolder } from '../models/hf-config.js';
import { checkModelFiles } from '../models/engine-folder.js';
import { readTextIfAny } from '../models/model-files.js';
import { modelFilesDigest } from '../models/model-source.js';
import {
  eosTokensIn,
  type ModelFolder,
  readModelFolder,
  refuseLargerVocabulary,
  selfContained,
  templateInConfig,
} from '../models/model-folder.js';
import { positionsFix } from '../spec/combinations.js';
import { InvalidSpec } from '../spec/invalid-spec.js';
import type { Digest } from '../spec/records/parts.js';
import type { GeneratorSpec, ModelSpec, RunSpec } from '../spec/run-spec.js';
import { toolFormatNames } from '../spec/tool-format-names.js';

/** Many models have their chat template in it. */
const configName = 'tokenizer_config.json';

interface ModelAssets {
  baseModel: Digest;
  tokenizer: string;
  template: string;
  format: ToolFormat;
  /** Ids of the tokens that end a text, from `generation_config.json` or `config.json`. */
  eosTokens: number[];
}

/** Throws `InvalidSpec` if a file is missing, damaged, or does not fit the others. */
export async function takeUpModel(spec: RunSpec, signal?: AbortSignal): Promise<ModelAssets> {
  const { folder, loaded: _, ...assets } = await checkedModel(spec);
  const files = await named('model.path', async () => folder && modelFilesDigest(folder.path, signal));
  return { baseModel: baseModelDigest(spec, files), ...assets };
}

export interface CheckedModel extends Omit<ModelAssets, 'baseModel'> {
  folder: ModelFolder | null;
  loaded: { tokenizer: Tokenizer; template: ChatTemplate };
}

/** Does the same checks without reading the weights. Throws `InvalidSpec`. */
export async function checkedModel(spec: RunSpec): Promise<CheckedModel> {
  const { model } = spec;
  const folder = await named('model.path', async () =>
    model.path === undefined ? null : readModelFolder(model.path, model.rope_scaling),
  );
  const shape = folder?.outline ?? model.architecture;
  const tokenizer = await readTokenizer(model, folder);
  const source = await readTemplate(model, folder);
  const template = withVariables(source, spec.generator);
  const loaded = load(model, tokenizer, template);
  const format = formatFor(spec.generator, source);
  await named('model.tokenizer', async () => {
    if (shape) refuseLargerVocabulary(tokenizer, shape, model.tokenizer);
  });
  if (folder) refuseLongerEpisodes(spec, folder);
  await named('model.path', async () => folder && checkModelFiles(folder.path));
  const eosTokens =
    folder?.eosTokens ?? (await named('model.tokenizer', () => eosTokensIn(dirname(model.tokenizer))));
  return { folder, loaded, tokenizer, template, format, eosTokens };
}

/** Text that a run stores as its chat template. Throws if it cannot be read. */
export async function templateText({ model, generator }: RunSpec): Promise<string> {
  const folder = model.path === undefined ? null : await readModelFolder(model.path);
  return withVariables(await readTemplate(model, folder), generator);
}

/** The template with the variables set at its beginning, because later only the template is passed on. */
function withVariables(template: string, { chat_template_kwargs: variables = {} }: GeneratorSpec): string {
  const set = Object.entries(variables).map(([name, value]) => {
    const path = `generator.chat_template_kwargs.${name}`;
    if (renderedVariables.includes(name))
      throw new InvalidSpec([{ path, problem: 'is set for each prompt', fix: 'remove it' }]);
    if (!new RegExp(`\\b${name}\\b`).test(template))
      throw new InvalidSpec([
        { path, problem: 'is no variable of the chat template', fix: 'remove it, or correct its name' },
      ]);
    return `{%- set ${name} = ${JSON.stringify(value)} %}`;
  });
  return `${set.join('')}${template}`;
}

function formatFor({ tool_format: wanted }: GeneratorSpec, template: string): ToolFormat {
  const name = wanted === 'auto' ? formatOfTemplate(template) : wanted;
  if (name !== null) return toolFormat(name);
  throw new InvalidSpec([
    {
      path: 'generator.tool_format',
      problem: 'the chat template teaches tool calls in a form that is not read here',
      fix: `name one that the model also writes: ${toolFormatNames.join(', ')}`,
    },
  ]);
}

/** Text that a run stores as its tokenizer. Throws if it cannot be read. */
export async function tokenizerText(model: ModelSpec): Promise<string> {
  return readTokenizer(model, model.path === undefined ? null : await readModelFolder(model.path));
}

/** Reads the tokenizer from the file that the spec names, else from the model folder. */
async function readTokenizer(model: ModelSpec, folder: ModelFolder | null): Promise<string> {
  const isOwn = folder !== null && model.tokenizer === join(folder.path, 'tokenizer.json');
  return (isOwn ? folder.tokenizer : null) ?? (await readAsset(model.tokenizer, 'model.tokenizer'));
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
  const text = await named(key, () => readTextIfAny(path));
  if (text !== null) return text;
  throw new InvalidSpec([{ path: key, problem: `there is no file ${path}`, fix: 'name a file that exists' }]);
}

/** Loads tokenizer and template, so that a broken file is refused here and not later on a node. */
function load(model: ModelSpec, tokenizerText: string, templateText: string): CheckedModel['loaded'] {
  try {
    const tokenizer = loadTokenizer(tokenizerText);
    const template = loadChatTemplate(templateText, tokenizer);
    refuseWithoutSystem(template);
    return { tokenizer, template };
  } catch (error) {
    if (error instanceof InvalidSpec) throw error;
    throw new InvalidSpec([
      {
        path: 'model',
        problem: `${model.tokenizer} and ${model.chat_template} do not load: ${(error as Error).message}`,
        fix: 'give a Hugging Face tokenizer.json and the Jinja chat template that belongs to it',
      },
    ]);
  }
}

/** Refuses a template without system messages: the first episode would fail, because its system prompt lists the tools. */
function refuseWithoutSystem(template: ChatTemplate): void {
  const refusal = systemRefusal(template);
  if (refusal === null) return;
  throw new InvalidSpec([
    {
      path: 'model.chat_template',
      problem: `${refusal}, and the prompt of each episode begins with one`,
      fix: 'name a chat template of this model that has a system message, for example one that puts it before the first user message',
    },
  ]);
}

function refuseLongerEpisodes({ generator }: RunSpec, { path, outline }: ModelFolder): void {
  const longest = outline.max_position_embeddings;
  if (generator.max_sequence_length <= longest) return;
  throw new InvalidSpec([
    {
      path: 'generator.max_sequence_length',
      problem: `${generator.max_sequence_length} is more than ${longest}, the context of the model in ${path}`,
      fix: positionsFix(longest, 'extend the context with YaRN: model.rope_scaling'),
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
