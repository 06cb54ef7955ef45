// `longhaul engine …`: the engine without a run. Its scores and samples of a model folder can be compared with any other implementation.
import { text as readStream } from 'node:stream/consumers';
import { readFile } from 'node:fs/promises';
import { type Command, Option } from 'commander';
import { exportModel, requireNewFolder } from '../../policy/model-export.js';
import { EngineError } from '../../engine/policy-engine.js';
import { modelFilesDigest } from '../../models/model-source.js';
import { readSpecFile } from '../../spec/spec-input.js';
import {
  type GenerateInput,
  parseGenerateInput,
  parseScoreInput,
  type Placed,
  type ScoreInput,
} from './engine-input.js';
import { type ModelFlags, openEngine, type OpenModel, textOf, tokensOf, withModel } from './engine-model.js';
import { BadInput, wholeNumber, withOutput } from '../output.js';

interface InputFlags extends ModelFlags {
  input: string;
  json?: boolean;
}

export function register(program: Command): void {
  const engine = program
    .command('engine')
    .description('use the engine without a run: look at a model folder, score and sample with it');
  modelCommand(
    engine,
    'info',
    'print what a model folder contains, and the memory that the model takes',
  ).action(
    withOutput((flags: ModelFlags & { json?: boolean }) =>
      withModel(flags, async (model) => {
        console.log(JSON.stringify(await describe(model), null, flags.json ? 0 : 2));
      }),
    ),
  );
  inputCommand(
    engine,
    'score',
    'print the log-probs of given tokens, texts or conversations',
    scoreHelp,
  ).action(withOutput((flags: InputFlags) => answerAll(flags, parseScoreInput, score)));
  inputCommand(
    engine,
    'generate',
    'sample what follows given tokens, texts or conversations',
    generateHelp,
  ).action(withOutput((flags: InputFlags) => answerAll(flags, parseGenerateInput, generate)));
  engine
    .command('new')
    .argument('<spec>', 'run spec, YAML or JSON: gives architecture, seed, tokenizer and chat template')
    .description('write a model folder with random weights, for when no model can be downloaded')
    .requiredOption('--to <dir>', 'folder to write; must not exist yet')
    .addOption(new Option('--dtype <type>', 'of the weights').choices(['f32', 'bf16']).default('f32'))
    .option('--json', 'print the folder’s files as JSON')
    .action(
      withOutput(async (spec: string, flags: { to: string; dtype: string; json?: boolean }) => {
        const made = await newFolder(spec, flags);
        console.log(flags.json ? JSON.stringify(made) : `${made.path}\n  weights ${made.weights}`);
      }),
    );
}

function modelCommand(engine: Command, name: string, description: string): Command {
  return engine
    .command(name)
    .description(description)
    .requiredOption('--model <dir>', 'Hugging Face folder of a Qwen3 or Qwen2.5 model')
    .option(
      '--state <file>',
      'a run’s state.safetensors: replaces the folder’s weights; the adapters of a LoRA run are added to them',
    )
    .option('--threads <n>', 'threads of the engine; by default one per core', wholeNumber(1, 1024))
    .option('--json', 'print errors as JSON as well');
}

function inputCommand(engine: Command, name: string, description: string, help: string): Command {
  return modelCommand(engine, name, description)
    .option(
      '--input <file>',
      'requests: a JSON object, a list of objects, or one object per line; "-" is standard input',
      '-',
    )
    .addHelpText('after', help);
}

const scoreHelp = `
A request has text, tokens or messages, and may have a temperature (1). One line is printed for each request, in order:
  {"tokens": [..], "logprobs": [..]}      one log-prob for each token after the first
  echo '{"text": "Hello, world"}' | longhaul engine score --model DIR`;

const generateHelp = `
A request has text, tokens or messages, and may have max_new_tokens (128), temperature (1), seed (1), n samples (1), stop (texts),
ignore_eos (false), top_p and top_k; a sample ends at the model's max_position_embeddings in any case. One line is printed for each
request, in order; the same request always gives the same samples:
  {"prompt_tokens": [..], "samples": [{"tokens": [..], "text": "..", "logprobs": [..], "finish": "stop"}]}
  echo '{"messages": [{"role": "user", "content": "Hi"}]}' | longhaul engine generate --model DIR`;

async function describe(model: OpenModel): Promise<object> {
  const { folder, engine, loaded } = model;
  const { build, numerics, gpu, instructionSet, threads } = await engine.info();
  const { eosTokens, tokenizer, chatTemplate } = folder;
  return {
    path: folder.path,
    digest: await modelFilesDigest(folder.path),
    ...{ weights: loaded.weights, state: loaded.state },
    parameters: loaded.parameters.model,
    architecture: loaded.architecture,
    tokenizer:
      tokenizer === null
        ? null
        : { vocab_size: model.tokenizer().vocabSize, chat_template: chatTemplate !== null },
    eos_tokens: eosTokens,
    memory_bytes: loaded.memory,
    engine: { build, numerics, gpu, instruction_set: instructionSet, threads },
  };
}

/** Checks all requests before the engine computes the first one. Prints the answers in the order of the requests, one line each. */
async function answerAll<T>(
  flags: InputFlags,
  parse: (text: string) => Placed<T>[],
  answer: (model: OpenModel, request: T) => Promise<object>,
): Promise<void> {
  const requests = parse(await readInput(flags.input));
  await withModel(flags, async (model) => {
    const answers = requests.map(async ({ where, request }) => {
      try {
        return await answer(model, request);
      } catch (error) {
        const isInput =
          error instanceof BadInput || (error instanceof EngineError && error.code === 'BadInput');
        throw isInput ? new BadInput(`${where}: ${error.message}`, { cause: error }) : error;
      }
    });
    // The first failure ends the command and the engine, so nothing awaits the other requests.
    for (const one of answers) one.catch(() => undefined);
    for (const one of answers) console.log(JSON.stringify(await one));
  });
}

async function readInput(file: string): Promise<string> {
  if (file === '-') {
    if (process.stdin.isTTY) console.error('reading requests from the terminal: end them with Ctrl-D');
    return readStream(process.stdin);
  }
  return readFile(file, 'utf8').catch((error: Error) => {
    throw new BadInput(`--input ${file} cannot be read: ${error.message}`, { cause: error });
  });
}

async function score(model: OpenModel, request: ScoreInput): Promise<object> {
  const tokens = await tokensOf(model, request, false);
  if (tokens.length < 2) throw new BadInput(`it has ${tokens.length} tokens; a score needs at least 2`);
  const { temperature } = request;
  const logprobs = await model.engine.score({ state: model.loaded.state, tokens, temperature });
  return { tokens, logprobs };
}

async function generate(model: OpenModel, request: GenerateInput): Promise<object> {
  const { engine, loaded, folder } = model;
  const { temperature, max_new_tokens, seed, stop, top_p, top_k } = request;
  const tokens = await tokensOf(model, request, true);
  if (tokens.length === 0)
    throw new BadInput('it has no tokens: generation needs at least one token to continue');
  if (stop !== undefined) await model.sendVocabulary();
  const samples = await Promise.all(
    Array.from({ length: request.n }, async (_, sample) => {
      const { finish, ...sampled } = await engine.generate({
        ...{ state: loaded.state, tokens, temperature, max_new_tokens },
        // The key does not depend on the other requests: a request alone gets the same samples.
        key: { seed, domain: 'eval', step: 0, slot: 0, sample },
        stop_tokens: request.ignore_eos ? [] : folder.eosTokens,
        ...(stop === undefined ? {} : { stop_strings: stop }),
        ...(top_p === undefined ? {} : { top_p }),
        ...(top_k === undefined ? {} : { top_k }),
      });
      return {
        tokens: sampled.tokens,
        text: textOf(model, sampled.tokens),
        logprobs: sampled.logprobs,
        finish,
      };
    }),
  );
  return { prompt_tokens: tokens, samples };
}

async function newFolder(specFile: string, { to, dtype }: { to: string; dtype: string }) {
  const { model, seed } = await readSpecFile(specFile);
  const { architecture, initializer_range } = model;
  if (!architecture)
    throw new BadInput(`${specFile} names a model folder, so it has no architecture for random weights`);
  const [tokenizer, template] = await Promise.all([
    readFile(model.tokenizer, 'utf8'),
    readFile(model.chat_template, 'utf8'),
  ]);
  await requireNewFolder(to);
  const engine = openEngine(undefined);
  try {
    const { state, weights } = await engine.loadRandom({ architecture, initializer_range, seed });
    const exported = await exportModel(engine, {
      ...{ state, to, tokenizer, template, eosTokens: [] },
      adapters: 'merged',
      dtype: dtype === 'bf16' ? 'BF16' : 'F32',
      maxPositionEmbeddings: architecture.max_position_embeddings,
    });
    return { ...exported, weights };
  } finally {
    await engine.close();
  }
}
