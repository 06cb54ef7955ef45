import { describe, expect, test } from 'vitest';
import { observationTokens, stopTokens, turnText } from '../../src/episode/conversation.js';
import type { ToolFormatName } from '../../src/spec/tool-format-names.js';
import { coderOf } from './model-families.js';

const stopsOf = (coder: ReturnType<typeof coderOf>): string[] =>
  stopTokens(coder)
    .map((id) => coder.tokenizer.decode([id]))
    .sort();

describe('a turn ends at', () => {
  test.each<[ToolFormatName, string[]]>([
    // A model that thinks may write a call's end in its thoughts.
    ['hermes', ['<|im_end|>']],
    ['qwen_xml', ['</tool_call>', '<done>', '<|im_end|>']],
    ['llama_json', ['<done>', '<|eom_id|>', '<|eot_id|>']],
    ['mistral', ['</s>', '<done>']],
    ['gpt_oss', ['<|call|>', '<|return|>']],
  ])('%s: %j', (name, stops) => expect(stopsOf(coderOf(name))).toEqual(stops));

  test('the end of a message within a turn of gpt-oss does not stop generation, even if the template closes each turn with it', () => {
    const always = `{%- for m in messages %}{{- '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start|>assistant<|channel|>' }}{%- endif %}`;
    expect(stopsOf(coderOf('gpt_oss', always))).toEqual(['<|call|>', '<|return|>']);
  });

  test('the template’s own tokens for a model without generation_config.json', () => {
    expect(stopsOf({ ...coderOf('gpt_oss'), eosTokens: [] })).toEqual(['<|call|>', '<|return|>']);
    expect(stopsOf({ ...coderOf('mistral'), eosTokens: [] })).toEqual(['</s>', '<done>']);
    // The format does not change how the model ends its turns.
    expect(stopsOf({ ...coderOf('gpt_oss'), format: coderOf('hermes').format, eosTokens: [] })).toEqual([
      '<|return|>',
    ]);
  });
});

test('a turn of gpt-oss gets no second end, whichever token closed it', async () => {
  const coder = coderOf('gpt_oss');
  const { tokenizer } = coder;
  const after = (turn: string): Promise<string> =>
    observationTokens(coder, 'c', tokenizer.encode(turn).at(-1)).then((ids) => tokenizer.decode(ids));
  const next = '<|start|>user<|message|>c<|end|><|start|>assistant';
  for (const end of ['<|call|>', '<|return|>', '<|end|>']) expect(await after(`a${end}`)).toBe(next);
  expect(await after('a')).toBe(`<|end|>${next}`);
  expect(turnText(coder, tokenizer.encode('a<|call|>'))).toBe('a');
});
