import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { loadChatTemplate, systemRefusal } from '../../src/episode/chat-template.js';
import { observationTokens, stopTokens, turnText } from '../../src/episode/conversation.js';
import { loadTokenizer } from '../../src/episode/tokenizer.js';
import { hermes } from './fixtures.js';
import { toolFormatNames } from '../../src/spec/tool-format-names.js';
import { coderOf } from './model-families.js';

const tokenizer = loadTokenizer(readFileSync('presets/tokenizers/small/tokenizer.json'));
const small = loadChatTemplate(
  readFileSync('presets/tokenizers/small/chat_template.jinja', 'utf8'),
  tokenizer,
);

// What makes real templates difficult: earlier turns lose their thinking, text is trimmed, there is a default system prompt.
const thinking = loadChatTemplate(
  `{%- if messages[0].role != 'system' %}{{- '<|im_start|>system\\nBe brief.<|im_end|>\\n' }}{%- endif %}
{%- for m in messages %}
{%- if m.role == 'assistant' %}{{- '<|im_start|>assistant\\n' + m.content.split('</think>')[-1] + '<|im_end|>\\n' }}
{%- else %}{{- '<|im_start|>' + m.role + '\\n' + (m.content | trim) + '<|im_end|>\\n' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n' }}{%- endif %}`,
  tokenizer,
);

describe('tokens that end a turn', () => {
  // The last turn of a conversation is closed with another token than earlier ones, whose token may stand within a turn.
  const ends = loadChatTemplate(
    `{%- for m in messages %}{{- '<|im_start|>' + m.role + m.content }}
{%- if loop.last and not add_generation_prompt %}{{- '<done>' }}{%- else %}{{- '<|im_end|>' }}{%- endif %}
{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant' }}{%- endif %}`,
    tokenizer,
  );
  const idOf = (text: string): number => tokenizer.addedToken(text)!;
  const coder = { tokenizer, template: ends, ...hermes };

  test('are the template’s, the format’s and those of generation_config.json, and none is written twice', async () => {
    expect(ends.closers).toEqual([idOf('<done>'), idOf('<|im_end|>')]);
    expect(new Set(stopTokens({ ...coder, eosTokens: [idOf('<|im_start|>'), 77] }))).toEqual(
      new Set(['<done>', '<|im_start|>', '</tool_call>'].map(idOf).concat(77)),
    );
    const next = await observationTokens(coder, 'c', idOf('</tool_call>'));
    expect(tokenizer.decode(next)).toBe('<|im_end|><|im_start|>userc<|im_end|><|im_start|>assistant');
    for (const [closer, eosTokens] of [
      [idOf('<done>'), []],
      [idOf('<|im_end|>'), []],
      [77, [77]],
    ] as const)
      expect(await observationTokens({ ...coder, eosTokens }, 'c', closer)).toEqual(next.slice(1));
  });

  test('do not end a turn that may still think', () => {
    const mayThink = { ...ends, mayThink: true };
    expect(stopTokens({ ...coder, template: mayThink })).not.toContain(idOf('</tool_call>'));
  });

  test('are no part of a turn’s text', () => {
    expect(turnText(coder, tokenizer.encode('It is 7.<|im_end|>'))).toBe('It is 7.');
    expect(turnText({ ...coder, eosTokens: [77] }, [...tokenizer.encode('It is 7.'), 77])).toBe('It is 7.');
    expect(turnText(coder, tokenizer.encode('<tool_call>{}</tool_call>'))).toBe('<tool_call>{}</tool_call>');
  });
});

describe('a chat template', () => {
  test('gives prompt, turns and text between turns that together equal the whole rendered conversation', () => {
    const built = small.prompt([{ role: 'user', content: 'a' }]) + 'b<|im_end|>' + small.between('c', true);
    const whole = small.prompt([
      { role: 'user', content: 'a' },
      { role: 'assistant', content: 'b' },
      { role: 'user', content: 'c' },
    ]);
    expect(built).toBe(whole);
  });

  test.each(toolFormatNames)('also in the form of a family that calls as %s', (name) => {
    const { template } = coderOf(name);
    const [user, next] = ['a', 'c'].map((content) => ({ role: 'user' as const, content }));
    const turn = name === 'gpt_oss' ? '<|channel|>final<|message|>b' : 'b';
    expect(template.prompt([user!]) + turn + template.between('c', false)).toBe(
      template.prompt([user!, { role: 'assistant', content: 'b' }, next!]),
    );
  });

  test('closes a turn that did not close itself, and no other', () => {
    expect(small.between('c', false)).toBe(
      '<|im_end|>\n<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n',
    );
    expect(small.between('c', true)).toBe('\n<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n');
    expect(small.endOfTurn).toBe(tokenizer.addedToken('<|im_end|>'));
  });

  test('frames observations like a template that trims, thinks and has a default system prompt', () => {
    expect(thinking.between(' c ', true)).toBe(
      '\n<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n<think>\n',
    );
  });

  test('says whether a turn begins within thinking, and whether earlier thinking is dropped', () => {
    expect(thinking).toMatchObject({ opensThinking: true, mayThink: true });
    expect(thinking.dropsThinking()).toBe(true);
    expect(small).toMatchObject({ opensThinking: false, mayThink: false });
    expect(small.dropsThinking()).toBe(false);
  });

  test('of gpt-oss drops the thinking that stands beside a turn, and that of Mistral keeps it', () => {
    expect(coderOf('gpt_oss').template.dropsThinking()).toBe(true);
    for (const name of ['hermes', 'llama_json', 'mistral'] as const)
      expect(coderOf(name).template.dropsThinking()).toBe(false);
  });

  test('saved with the line ends of Windows gives the same prompts', () => {
    const source = readFileSync('presets/tokenizers/small/chat_template.jinja', 'utf8');
    const windows = loadChatTemplate(source.replaceAll('\n', '\r\n'), tokenizer);
    const messages = [{ role: 'user' as const, content: 'a\r\nb' }];
    expect(windows.prompt(messages)).toBe(small.prompt(messages));
    expect(windows.between('c\r\n', true)).toBe(small.between('c\r\n', true));
  });

  test('that takes no system message, or leaves it out, is found', () => {
    const of = (system: string) =>
      loadChatTemplate(
        `{%- for m in messages %}{%- if m.role == 'system' %}${system}{%- else %}{{- m.content + '<|im_end|>' }}{%- endif %}{%- endfor %}`,
        tokenizer,
      );
    expect(systemRefusal(of("{{- raise_exception('System role not supported') }}"))).toMatch(
      /refuses a system message: .*System role not supported/,
    );
    expect(systemRefusal(of(''))).toBe('it leaves out a system message');
    expect(systemRefusal(of('{{- m.content }}'))).toBeNull();
    expect(systemRefusal(small)).toBeNull();
  });

  test('gives the task’s date if the template asks for the current time', () => {
    const dated = loadChatTemplate(
      `{{- strftime_now('%d %b') }}{%- for m in messages %}{{- m.content + '<|im_end|>' }}{%- endfor %}`,
      tokenizer,
    );
    expect(dated.prompt([{ role: 'user', content: 'a' }], '2026-04-15')).toBe('2026-04-15a<|im_end|>');
  });

  test('is refused with the reason if it is broken or ends a turn without a special token', () => {
    expect(() => loadChatTemplate('{% for %}', tokenizer)).toThrow(/not valid Jinja/);
    expect(() => loadChatTemplate('{% for m in messages %}{{ m.content }}.{% endfor %}', tokenizer)).toThrow(
      /does not close an assistant turn/,
    );
  });
});
