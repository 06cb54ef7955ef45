// Opens a model folder on an engine of its own, for use without a run.
import { tmpdir } from 'node:os';
import { createNativeEngine, type NativeEngine } from '../../engine/native/native-engine.js';
import type { LoadedState } from '../../engine/file-engine.js';
import { type ChatTemplate, loadChatTemplate } from '../../episode/chat-template.js';
import { loadTokenizer, type Tokenizer } from '../../episode/tokenizer.js';
import { withEngineFolder } from '../../models/engine-folder.js';
import { type ModelFolder, readModelFolder, selfContained } from '../../models/model-folder.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { readNumerics } from '../../store/runs/run-records.js';
import { findEngineBinary } from '../../workers/process/built-tool.js';
import type { PromptInput } from './engine-input.js';
import { BadInput } from '../output.js';

export interface ModelFlags {
  model: string;
  /** A run's state file. A LoRA state is applied on top of the folder's weights. */
  state?: string;
  threads?: number;
}

export interface OpenModel {
  folder: ModelFolder;
  engine: NativeEngine;
  loaded: LoadedState;
  /** `tokenizer` and `template` throw `BadInput`, which says what the folder lacks. */
  tokenizer(): Tokenizer;
  template(): ChatTemplate;
  /** Sends the engine the bytes of each token, which stop texts need; sends them once. */
  sendVocabulary(): Promise<void>;
}

export async function withModel<T>(flags: ModelFlags, use: (model: OpenModel) => Promise<T>): Promise<T> {
  const folder = await readModelFolder(flags.model);
  const engine = openEngine(flags.threads);
  try {
    const { state } = flags;
    const loaded = await withEngineFolder(folder.path, { scratch: tmpdir() }, (base) =>
      state === undefined ? engine.loadHf({ path: base }) : engine.loadState({ path: state, base }),
    );
    const coders = textCoders(folder);
    let sending: Promise<void> | undefined;
    const sendVocabulary = async (): Promise<void> => {
      await (sending ??= engine.setVocabulary(coders.tokenizer().bytes()));
    };
    return await use({ folder, engine, loaded, ...coders, sendVocabulary });
  } finally {
    await engine.close();
  }
}

/** An engine with the run's numerics. */
export async function openEngineOf(store: ObjectStore, run: string): Promise<NativeEngine> {
  const { backend } = await readNumerics(store, run);
  return createNativeEngine({ binary: findEngineBinary(), numerics: backend });
}

export function openEngine(threads: number | undefined): NativeEngine {
  return createNativeEngine({
    binary: findEngineBinary(),
    ...(threads === undefined ? {} : { threads }),
    ...(process.env['LONGHAUL_DEBUG'] ? { log: (line: string) => console.error(line) } : {}),
  });
}

function textCoders({
  path,
  tokenizer: text,
  chatTemplate,
  texts,
}: ModelFolder): Pick<OpenModel, 'tokenizer' | 'template'> {
  let tokenizer: Tokenizer | undefined;
  let template: ChatTemplate | undefined;
  const needTokenizer = (): Tokenizer => {
    if (text === null)
      throw new BadInput(`${path} has no tokenizer.json: give tokens instead of text, without stop texts`);
    return (tokenizer ??= loadTokenizer(text));
  };
  return {
    tokenizer: needTokenizer,
    template: () => {
      if (chatTemplate === null)
        throw new BadInput(`${path} has no chat template: give text or tokens in place of messages`);
      return (template ??= loadChatTemplate(selfContained(chatTemplate, texts), needTokenizer()));
    },
  };
}

/** Token ids of a request's prompt. With `generate`, messages end where the assistant's next turn begins. */
export async function tokensOf(
  model: OpenModel,
  input: PromptInput,
  generate: boolean,
): Promise<readonly number[]> {
  if (input.tokens !== undefined) return input.tokens;
  if (input.text !== undefined) return model.tokenizer().encodeLong(input.text);
  const messages = input.messages ?? [];
  const template = model.template();
  return model.tokenizer().encodeLong(generate ? template.prompt(messages) : template.conversation(messages));
}

/** Text of the token ids; null if the folder has no tokenizer. */
export function textOf(model: OpenModel, tokens: readonly number[]): string | null {
  return model.folder.tokenizer === null ? null : model.tokenizer().decode(tokens);
}
