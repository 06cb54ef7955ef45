// `longhaul engine` and `longhaul export` on a folder with random weights.
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadTokenizer } from '../../../src/episode/tokenizer.js';
import { longhaul } from '../../support/command-line.js';

const folder = mkdtempSync(join(tmpdir(), 'longhaul-cli-engine-'));
const model = join(folder, 'model');
const tokenizer = loadTokenizer(readFileSync('presets/tokenizers/small/tokenizer.json', 'utf8'));

interface Scored {
  tokens: number[];
  logprobs: number[];
}
interface Generated {
  prompt_tokens: number[];
  samples: { tokens: number[]; text: string; logprobs: number[]; finish: string }[];
}

async function answers<T>(verb: string, input: string, ...args: string[]): Promise<T[]> {
  const { code, output, errors } = await longhaul(['engine', verb, '--model', model, ...args], { input });
  expect(errors).toBe('');
  expect(code).toBe(0);
  return output
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as T);
}

const asLines = (...requests: object[]): string =>
  requests.map((request) => JSON.stringify(request)).join('\n');

beforeAll(async () => {
  const { code, errors } = await longhaul(['engine', 'new', 'presets/tiny.yaml', '--to', model]);
  expect(errors).toBe('');
  expect(code).toBe(0);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('longhaul engine new', () => {
  test('writes a folder that transformers can open, and refuses an existing folder', async () => {
    for (const file of [
      'config.json',
      'model.safetensors',
      'tokenizer.json',
      'chat_template.jinja',
      'generation_config.json',
    ])
      expect(existsSync(join(model, file))).toBe(true);
    const again = await longhaul(['engine', 'new', 'presets/tiny.yaml', '--to', model]);
    expect(again).toMatchObject({ code: 1, errors: expect.stringMatching(/exists already/) as string });
  });
});

describe('longhaul engine info', () => {
  test('says what is in a folder, and how much memory it takes', async () => {
    const { code, output } = await longhaul(['engine', 'info', '--model', model]);
    expect(code).toBe(0);
    const info = JSON.parse(output) as Record<string, unknown>;
    expect(info).toMatchObject({
      path: model,
      architecture: { model_type: 'qwen3', vocab_size: 1024, hidden_size: 64, num_hidden_layers: 2 },
      tokenizer: { chat_template: true },
      eos_tokens: [tokenizer.addedToken('<|im_end|>')],
      engine: { numerics: { backend: 'cpu' } },
    });
    const { total, available, ...parts } = info['memory_bytes'] as Record<string, number>;
    expect(Object.values(parts).reduce((sum, bytes) => sum + bytes, 0)).toBe(total);
    expect(available).toBeGreaterThan(total!);
  });

  test('exits with 1 and says that the folder does not exist', async () => {
    const { code, errors } = await longhaul(['engine', 'info', '--model', join(folder, 'none')]);
    expect(errors).toMatch(/^error: there is no folder .*none/);
    expect(code).toBe(1);
  });
});

describe('longhaul engine score and generate', () => {
  test('give the same log-probs, and a single request gets the same samples as among other requests', async () => {
    const requests = [
      { text: 'Close ISS-7Q2K', max_new_tokens: 12, n: 3, seed: 4 },
      { tokens: [5, 6, 7], max_new_tokens: 5, temperature: 0.7, ignore_eos: true },
      { messages: [{ role: 'user', content: 'Hello' }], max_new_tokens: 8 },
    ];
    const together = await answers<Generated>('generate', asLines(...requests));
    expect(together[0]!.samples).toHaveLength(3);
    expect(together[1]!.samples[0]!.tokens).toHaveLength(5);
    for (const [at, request] of requests.entries())
      expect(await answers<Generated>('generate', JSON.stringify(request))).toEqual([together[at]]);
    const wholes = together.map(({ prompt_tokens, samples }, at) => ({
      tokens: [...prompt_tokens, ...samples[0]!.tokens],
      temperature: requests[at]!.temperature ?? 1,
    }));
    const scored = await answers<Scored>('score', JSON.stringify(wholes));
    for (const [at, { prompt_tokens, samples }] of together.entries()) {
      expect(scored[at]!.logprobs.slice(prompt_tokens.length - 1)).toEqual(samples[0]!.logprobs);
      expect(tokenizer.decode(samples[0]!.tokens)).toBe(samples[0]!.text);
    }
  });

  test('format messages by the chat template: generate adds the assistant’s next turn, score does not', async () => {
    const messages = [{ role: 'user', content: 'Hello' }];
    const [scored] = await answers<Scored>('score', JSON.stringify({ messages }));
    expect(tokenizer.decode(scored!.tokens)).toBe('<|im_start|>user\nHello<|im_end|>\n');
    const [generated] = await answers<Generated>('generate', JSON.stringify({ messages, max_new_tokens: 1 }));
    expect(tokenizer.decode(generated!.prompt_tokens)).toBe(
      '<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n',
    );
  });

  test('stop at the token that completes a stop text, and sample the same with top_k 1 for any seed', async () => {
    const request = { text: 'Close ISS-7Q2K', max_new_tokens: 40, ignore_eos: true, top_k: 1 };
    const [free] = await answers<Generated>('generate', JSON.stringify(request));
    const { text, tokens } = free!.samples[0]!;
    const stop = text.slice(10, 14);
    const [stopped] = await answers<Generated>(
      'generate',
      JSON.stringify({ ...request, stop: [stop], seed: 9 }),
    );
    const sample = stopped!.samples[0]!;
    expect(sample.finish).toBe('stop_string');
    expect(sample.tokens).toEqual(tokens.slice(0, sample.tokens.length));
    expect(sample.text).toContain(stop);
    expect(tokenizer.decode(sample.tokens.slice(0, -1))).not.toContain(stop);
  });

  test('read their input from a file', async () => {
    const file = join(folder, 'requests.jsonl');
    writeFileSync(file, `${asLines({ tokens: [1, 2] })}\n\n${asLines({ tokens: [1, 3] })}\n`);
    expect(await answers<Scored>('score', '', '--input', file)).toHaveLength(2);
  });

  test.each<[string, string, RegExp]>([
    ['', 'score', /the input is empty/],
    ['[]', 'score', /the input is an empty list/],
    [
      asLines({ tokens: Array.from({ length: 513 }, () => 1) }),
      'score',
      /line 1: score: 513 tokens are more than max_position_embeddings, 512/,
    ],
    [
      asLines({ tokens: Array.from({ length: 512 }, () => 1) }),
      'generate',
      /line 1: 512 tokens to continue; the model's max_position_embeddings, 512, leaves room for 1 to 511/,
    ],
    [
      asLines({ tokens: [1], max_new_tokens: 2 ** 40 }),
      'generate',
      /line 1: max_new_tokens must be .* 1073741824/,
    ],
    [
      asLines({ tokens: [1], top_k: 1025 }),
      'generate',
      /line 1: top_k must be a whole number from 1 to 1024/,
    ],
    ['{"tokens": [1, 2]}\n{"tokens": [1, 2', 'score', /line 2: it is not JSON/],
    [
      asLines({ tokens: [1, 2] }, { tokens: [1, 2], temprature: 1 }),
      'score',
      /line 2: there is no key "temprature"; did you mean temperature/,
    ],
    [
      '[{"tokens": [1, 2]}, {"tokens": [1, -2]}]',
      'score',
      /item 2 of the list: tokens\[1\] must be at least 0, not -2/,
    ],
    [asLines({ tokens: [1] }), 'score', /line 1: it has 1 tokens; a score needs at least 2/],
    [
      asLines({ text: 'a', tokens: [1] }),
      'generate',
      /line 1: give exactly one of text, tokens and messages; it has text and tokens/,
    ],
    [asLines({ temperature: 1 }), 'generate', /line 1: .*it has none of them/],
    [asLines({ text: 'a', temperature: 0 }), 'generate', /line 1: temperature must be more than 0, not 0/],
    [asLines({ text: 'a', stop: ['x', ''] }), 'generate', /line 1: stop\[1\] /],
    [asLines({ tokens: [1, 2] }, { tokens: [1, 9999] }), 'score', /line 2: .*tokens\[1\] is 9999/],
    ['7', 'score', /line 1: it must be a mapping/],
  ])(
    'refuse the input %j with one error that names place and field, and exit with 2',
    async (input, verb, message) => {
      const { code, errors } = await longhaul(['engine', verb, '--model', model], { input });
      expect(errors).toMatch(message);
      expect(errors.trim().split('\n')).toHaveLength(1);
      expect(code).toBe(2);
    },
  );
});
