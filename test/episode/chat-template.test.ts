import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { loadChatTemplate } from '../../src/episode/chat-template.js';
import { loadTokenizer } from '../../src/episode/tokenizer.js';

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
