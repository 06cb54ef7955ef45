// Reads a Hugging Face folder, except its weights: the engine reads those.
import { join } from 'node:path';
import type { RopeScaling } from '../spec/run-spec.js';
import { tokenCount } from '../episode/token-bytes.js';
import {
  BadModelFolder,
  badSetting,
  isObject,
  languageConfig,
  type ModelOutline,
  outlineOf,
} from './hf-config.js';
import { modelConfig, settingsPlace } from './model-config.js';
import { configFile, generationFile, readJson, readJsonIfAny, readTextIfAny } from './model-files.js';
import { findModel } from './model-source.js';

interface SpecialTokenTexts {
  bos_token?: string;
  eos_token?: string;
}

export interface ModelFolder {
  /** Absolute path. */
  path: string;
  outline: ModelOutline;
  /** Ids of the tokens that end a text, from `generation_config.json`, else from `config.json`. */
  eosTokens: number[];
  /** Text of `tokenizer.json`; null if it does not exist. */
  tokenizer: string | null;
  /** Jinja text from `chat_template.jinja`, else from `tokenizer_config.json` or `chat_template.json`; null if all lack it. */
  chatTemplate: string | null;
  texts: SpecialTokenTexts;
}

/** Settings of `tokenizer_config.json`, without the special tokens that templates use. Settings that the file lacks are absent. */
export interface TokenizerSettings {
  pad_token?: string;
  model_max_length?: number;
}

export async function readTokenizerSettings(folder: string): Promise<TokenizerSettings> {
  const config = await readJsonIfAny(join(folder, 'tokenizer_config.json'));
  const [pad, longest] = [textOf(config?.['pad_token']), config?.['model_max_length']];
  return {
    ...(pad === null ? {} : { pad_token: pad }),
    ...(typeof longest === 'number' && longest > 0 ? { model_max_length: longest } : {}),
  };
}

/**
 * `ropeScaling`: the run spec's; it replaces that of the config. Throws `BadModelFolder`, which says what is missing, damaged, or not
 * supported.
 */
export async function readModelFolder(
  folder: string,
  ropeScaling: RopeScaling | undefined = undefined,
): Promise<ModelFolder> {
  const { path, base } = await findModel(folder);
  const file = join(base, configFile);
  const whole = await readJson(file);
  const outline = outlineOf(modelConfig(whole, ropeScaling, file), settingsPlace(whole, file));
  const [tokenizer, tokenizerFile] = await firstText([path, base], 'tokenizer.json');
  if (tokenizer !== null) refuseLargerVocabulary(tokenizer, outline, tokenizerFile);
  const { chatTemplate, texts } = (await templateIn(path)) ?? (await templateIn(base)) ?? noTemplate;
  return {
    path,
    outline,
    eosTokens: await eosTokensIn(base, outline),
    tokenizer,
    chatTemplate,
    texts,
  };
}

/**
 * Ids of the tokens that end a text, from the folder's `generation_config.json`, else from its `config.json`; none without these files.
 * Throws `BadModelFolder`, also for ids that the model lacks if its outline is given.
 */
export async function eosTokensIn(
  folder: string,
  outline?: Pick<ModelOutline, 'vocab_size'>,
): Promise<number[]> {
  const generation = join(folder, generationFile);
  const own = idsOf((await readJsonIfAny(generation))?.['eos_token_id'], generation);
  const file = join(folder, configFile);
  const config = (await readJsonIfAny(file)) ?? {};
  const others = config['eos_token_id'] ?? languageConfig(config)['eos_token_id'];
  const [ids, from] = own.length > 0 ? [own, generation] : [idsOf(others, file), file];
  const outside = outline && ids.find((id) => id >= outline.vocab_size);
  if (outside === undefined) return ids;
  throw badSetting(
    `${from}: `,
    'eos_token_id',
    outside,
    `a token of this model, whose vocab_size is ${outline?.vocab_size}`,
  );
}

/** The tokenizer of the adapter's folder if it has one; else that of its base model. */
async function firstText(folders: string[], name: string): Promise<[text: string | null, file: string]> {
  for (const folder of folders) {
    const text = await readTextIfAny(join(folder, name));
    if (text !== null) return [text, join(folder, name)];
  }
  return [null, name];
}

type OwnTemplate = Pick<ModelFolder, 'chatTemplate' | 'texts'>;
const noTemplate: OwnTemplate = { chatTemplate: null, texts: {} };

/**
 * Null if the folder has neither a chat template nor texts of special tokens. Folders with a processor, as multimodal models have, may have
 * the template in its own file.
 */
async function templateIn(folder: string): Promise<OwnTemplate | null> {
  const settings = await readJsonIfAny(join(folder, 'tokenizer_config.json'));
  const ofProcessor = async (): Promise<unknown> =>
    (await readJsonIfAny(join(folder, 'chat_template.json')))?.['chat_template'];
  const chatTemplate =
    (await readTextIfAny(join(folder, 'chat_template.jinja'))) ??
    templateOf(settings?.['chat_template']) ??
    templateOf(await ofProcessor());
  return chatTemplate === null && settings === null ? null : { chatTemplate, texts: specialTexts(settings) };
}

function specialTexts(config: Record<string, unknown> | null): SpecialTokenTexts {
  const [bos, eos] = [textOf(config?.['bos_token']), textOf(config?.['eos_token'])];
  return { ...(bos === null ? {} : { bos_token: bos }), ...(eos === null ? {} : { eos_token: eos }) };
}

/** The chat template of a `tokenizer_config.json` outside a model folder; null if it has none. Throws `BadModelFolder`. */
export async function templateInConfig(file: string): Promise<string | null> {
  const config = await readJson(file);
  const template = templateOf(config['chat_template']);
  return template === null ? null : selfContained(template, specialTexts(config));
}

/** Throws `BadModelFolder` if the tokenizer has more tokens than the model's vocabulary. `file`: the tokenizer's name. */
export function refuseLargerVocabulary(
  tokenizer: string,
  { vocab_size }: Pick<ModelOutline, 'vocab_size'>,
  file: string,
): void {
  const tokens = countTokens(tokenizer, file);
  if (tokens <= vocab_size) return;
  throw new BadModelFolder(
    `${file} has ${tokens} tokens, but the model's vocab_size is ${vocab_size}: ` +
      'take the tokenizer of this model, or enlarge the model’s embedding first',
  );
}

function countTokens(tokenizer: string, file: string): number {
  try {
    return tokenCount(tokenizer);
  } catch (error) {
    throw new BadModelFolder(`${file} is not a usable tokenizer.json: ${(error as Error).message}`, {
      cause: error,
    });
  }
}

/**
 * Writes the special tokens' texts into the template, because later renderers have neither the folder nor its `tokenizer_config.json`. A
 * template that uses none of them stays the same, byte for byte.
 */
export function selfContained(template: string, texts: SpecialTokenTexts): string {
  const set = (['bos_token', 'eos_token'] as const)
    .filter((name) => texts[name] !== undefined && new RegExp(`\\b${name}\\b`).test(template))
    .map((name) => `{%- set ${name} = ${JSON.stringify(texts[name])} %}`);
  return `${set.join('')}${template}`;
}

/** The template text. If there are several named templates, the one named `default`. */
function templateOf(value: unknown): string | null {
  if (typeof value === 'string') return value;
  if (!Array.isArray(value)) return null;
  const named = value.filter(isObject).find(({ name }) => name === 'default');
  return typeof named?.['template'] === 'string' ? named['template'] : null;
}

/** `"<|im_end|>"` or `{"content": "<|im_end|>", …}` */
function textOf(value: unknown): string | null {
  const text = isObject(value) ? value['content'] : value;
  return typeof text === 'string' ? text : null;
}

function idsOf(value: unknown, file: string): number[] {
  const ids: unknown[] = Array.isArray(value) ? value : [value ?? []].flat();
  return ids.map((id) => {
    if (Number.isSafeInteger(id) && (id as number) >= 0) return id as number;
    throw badSetting(`${file}: `, 'eos_token_id', value, 'the id of a token, a list of ids, or null');
  });
}
