// Small chat templates in the forms that model families have, over the small tokenizer with their control tokens.
import { readFileSync } from 'node:fs';
import { loadChatTemplate } from '../../src/episode/chat-template.js';
import type { TextCoder } from '../../src/episode/conversation.js';
import { loadTokenizer } from '../../src/episode/tokenizer.js';
import { toolFormat } from '../../src/episode/tool-formats/tool-format.js';
import type { ToolFormatName } from '../../src/spec/tool-format-names.js';

interface Family {
  tokens: string[];
  template: string;
  /** Tokens that its `generation_config.json` names. */
  ends: string[];
}

const families: Record<ToolFormatName, Family> = {
  hermes: {
    tokens: ['<think>', '</think>'],
    template: `{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}{#- <think> #}`,
    ends: ['<|im_end|>'],
  },
  qwen_xml: {
    tokens: [],
    template: `{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}`,
    ends: ['<|im_end|>'],
  },
  llama_json: {
    tokens: ['<|begin_of_text|>', '<|header|>', '<|/header|>', '<|eot_id|>', '<|eom_id|>', '<|python_tag|>'],
    template: `{{- '<|begin_of_text|>' }}{%- for m in messages %}
{{- '<|header|>' + m.role + '<|/header|>\\n\\n' + (m.content | trim) + '<|eot_id|>' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|header|>assistant<|/header|>\\n\\n' }}{%- endif %}`,
    ends: ['<|eom_id|>', '<|eot_id|>'],
  },
  mistral: {
    tokens: ['<s>', '</s>', '[INST]', '[/INST]', '[TOOL_CALLS]', '[ARGS]'],
    template: `{{- '<s>' }}{%- for m in messages %}
{%- if m.role == 'assistant' %}{{- m.content + '</s>' }}{%- else %}{{- '[INST]' + m.content + '[/INST]' }}{%- endif %}
{%- endfor %}`,
    ends: ['</s>'],
  },
  gpt_oss: {
    tokens: ['start', 'end', 'message', 'channel', 'constrain', 'call', 'return'].map(
      (name) => `<|${name}|>`,
    ),
    // The last turn of a conversation is closed with another token than earlier ones, whose token also ends a message within a turn.
    template: `{%- for m in messages %}{%- if m.role == 'assistant' %}
{%- if m.thinking and loop.last and not add_generation_prompt %}{{- '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}{%- endif %}
{{- '<|start|>assistant<|channel|>final<|message|>' + m.content }}
{%- if loop.last and not add_generation_prompt %}{{- '<|return|>' }}{%- else %}{{- '<|end|>' }}{%- endif %}
{%- else %}{{- '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start|>assistant' }}{%- endif %}`,
    ends: ['<|return|>', '<|call|>'],
  },
};

/** `template`: instead of the family's own. */
export function coderOf(name: ToolFormatName, template = families[name].template): TextCoder {
  const file = JSON.parse(readFileSync('presets/tokenizers/small/tokenizer.json', 'utf8')) as {
    added_tokens: object[];
  };
  const habits = { single_word: false, lstrip: false, rstrip: false, normalized: false, special: true };
  const added = families[name].tokens.map((content, at) => ({ id: 1024 + at, content, ...habits }));
  const tokenizer = loadTokenizer(
    JSON.stringify({ ...file, added_tokens: [...file.added_tokens, ...added] }),
  );
  return {
    ...{ tokenizer, template: loadChatTemplate(template, tokenizer), format: toolFormat(name) },
    eosTokens: families[name].ends.map((text) => tokenizer.addedToken(text)!),
  };
}
