// The quickstart's tokenizer: certain texts are a single token, and episodes are as short as the budget assumes.
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { loadChatTemplate } from '../../src/episode/chat-template.js';
import { promptTokens } from '../../src/episode/conversation.js';
import { tokenizeDemonstration } from '../../src/episode/demonstration.js';
import { loadTokenizer } from '../../src/episode/tokenizer.js';
import { generateDemonstrations, generateTasks } from '../../examples/apps/generate.js';
import { appByName } from '../../examples/apps/registry.js';
import { hermes, sampling } from './fixtures.js';

const tokenizer = loadTokenizer(readFileSync('presets/tokenizers/small/tokenizer.json'));
const template = loadChatTemplate(
  readFileSync('presets/tokenizers/small/chat_template.jinja', 'utf8'),
  tokenizer,
);
const coder = { tokenizer, template, ...hermes };
/** The apps of the quickstart, for whose texts the tokenizer was trained. */
const appNames = ['tracker', 'booking'];

describe('the small tokenizer', () => {
  test('has 1024 pieces', () => expect(tokenizer.vocabSize).toBe(1024));

  test.each(['<|im_start|>', '<|im_end|>', '<tool_call>', '</tool_call>', '<done>', 'ISS-', 'HTL-', 'BKG-'])(
    '%s is one token',
    (text) => expect(tokenizer.encode(text)).toHaveLength(1),
  );

  test('JSON punctuation is one token; characters of ids and digits are one token each', () => {
    expect(tokenizer.encode('","arguments":{"id":"')).toHaveLength(1);
    for (const id of ['7Q2K', 'AB2C', 'ZZZZ', '2025', 'Q9XA', 'HKMN']) {
      expect([id, tokenizer.encode(`ISS-${id}`).map((token) => tokenizer.decode([token]))]).toEqual([
        id,
        ['ISS-', ...id],
      ]);
    }
  });

  test('encodes and decodes any text without loss', () => {
    for (const text of ['naïve 日本 🙂\n\t{"a": [1, 2]}', "it's 3.14  done", '']) {
      expect(tokenizer.decode(tokenizer.encode(text))).toBe(text);
    }
  });

  test('keeps prompts and episodes as short as the quickstart assumes', async () => {
    const system: Record<string, number> = {};
    for (const name of appNames) {
      const { tools, variables } = appByName(name);
      const bare = await promptTokens(coder, { prompt: '', env_variables: variables, tools, sampling });
      system[name] = bare.length;
      expect(bare.length).toBeLessThanOrEqual(150);
    }
    const spec = { apps: [...appNames], seed: 3 };
    const tasks = generateTasks({ ...spec, train_tasks: 200, held_out_tasks: 0 });
    const taskMean = mean(tasks.map((task) => tokenizer.encode(task.prompt).length));
    const demonstrations = generateDemonstrations({
      ...spec,
      drill_demonstrations: 0,
      teacher_demonstrations: 200,
    });
    const lengths = await Promise.all(
      demonstrations.map(async (demonstration) => {
        const tools = appByName(demonstration.env_key ?? '').tools;
        const { tokens, prompt_length, spans } = await tokenizeDemonstration(
          coder,
          demonstration,
          tools,
          sampling,
        );
        const sampled = spans.reduce((sum, { start, end }) => sum + end - start, 0);
        return { turns: spans.length, episode: tokens.length - prompt_length, sampled };
      }),
    );
    const episode = (turns: number) =>
      mean(lengths.filter((length) => length.turns === turns).map((length) => length.episode));
    console.log({
      system,
      taskMean,
      twoTurns: episode(2),
      threeTurns: episode(3),
      sampled: mean(lengths.map((l) => l.sampled)),
    });
    expect(taskMean).toBeLessThanOrEqual(22);
    expect(episode(2)).toBeLessThanOrEqual(36);
    expect(episode(3)).toBeLessThanOrEqual(80);
  });
});

// The teacher sometimes makes a call twice, so its longest episodes have four calls.
test.each([
  ['mail', 1],
  ['sprints', 0.9],
] as const)('episodes of %s fit into the quickstart’s context', async (name, share) => {
  const spec = { apps: [name], seed: 3, drill_demonstrations: 0, teacher_demonstrations: 300 };
  const { tools } = appByName(name);
  const lengths = await Promise.all(
    generateDemonstrations(spec).map(async (demonstration) => {
      const { tokens, spans } = await tokenizeDemonstration(coder, demonstration, tools, sampling);
      return { all: tokens.length, turn: Math.max(...spans.map(({ start, end }) => end - start)) };
    }),
  );
  const fitting = lengths.filter(({ all }) => all <= 448).length / lengths.length;
  console.log({ name, fitting, mean: mean(lengths.map(({ all }) => all)) });
  expect(fitting).toBeGreaterThanOrEqual(share);
  expect(Math.max(...lengths.map(({ turn }) => turn))).toBeLessThanOrEqual(64);
});

function mean(values: number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
