// Tokenizers and chat templates with the structure of well-known models: their control tokens, headers and ends of turns. Only the texts are ours.
import { readFileSync } from 'node:fs';
import { loadChatTemplate } from '../../src/episode/chat-template.js';
import type { TextCoder } from '../../src/episode/conversation.js';
import { toolFormat } from '../../src/episode/tool-formats/tool-format.js';
import { loadTokenizer } from '../../src/episode/tokenizer.js';
import type { ToolFormatName } from '../../src/spec/tool-format-names.js';

const small = readFileSync('presets/tokenizers/small/tokenizer.json', 'utf8');

interface AddedTokens {
  added_tokens: { id: number; content: string; special: boolean }[];
}

/** The small tokenizer with the added tokens of other models, and their habits. */
export function withTokens(contents: readonly string[], token: object = {}, file: object = {}): string {
  const base = JSON.parse(small) as AddedTokens;
  const added = contents.map((content, at) => addedToken(content, 1024 + at, token));
  return JSON.stringify({ ...base, added_tokens: [...base.added_tokens, ...added], ...file });
}

export function addedToken(content: string, id: number, more: object = {}) {
  const habits = { single_word: false, lstrip: false, rstrip: false, normalized: false, special: true };
  return { id, content, ...habits, ...more };
}

export const tokensOf = {
  llama: ['<|begin_of_text|>', '<|start_header_id|>', '<|end_header_id|>', '<|eot_id|>', '<|python_tag|>'],
  mistral: [
    ...['<s>', '</s>', '[INST]', '[/INST]', '[SYSTEM_PROMPT]', '[/SYSTEM_PROMPT]'],
    ...['[TOOL_CALLS]', '[TOOL_RESULTS]', '[THINK]', '[/THINK]'],
  ],
  gptOss: ['<|start|>', '<|end|>', '<|message|>', '<|channel|>', '<|constrain|>', '<|call|>', '<|return|>'],
};

interface ImitatedModel {
  tokens: readonly string[];
  template: string;
  format: ToolFormatName;
}

const chatml = `{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor %}`;

const models = {
  'the small model': {
    tokens: [],
    format: 'hermes',
    template: `${chatml}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}`,
  },
  'a Qwen that thinks first': {
    tokens: ['<|endoftext|>', '<think>', '</think>'],
    format: 'qwen_xml',
    template: `${chatml}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n' }}{%- endif %}`,
  },
  'Llama 3': {
    tokens: tokensOf.llama,
    format: 'llama_json',
    template: `{{- '<|begin_of_text|>' }}
{%- for m in messages %}{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' }}
{%- if m.role == 'system' %}{{- 'Knowledge until: 2023\\nIt is ' + date_string + '\\n\\n' }}{%- endif %}
{{- m.content | trim + '<|eot_id|>' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}`,
  },
  Mistral: {
    tokens: tokensOf.mistral,
    format: 'mistral',
    template: `{{- '<s>' }}{%- for m in messages %}
{%- if m.role == 'system' %}{{- '[SYSTEM_PROMPT]' + m.content + '[/SYSTEM_PROMPT]' }}
{%- elif m.role == 'user' %}{{- '[INST]' + m.content + '[/INST]' }}
{%- else %}{{- m.content + '</s>' }}{%- endif %}{%- endfor %}`,
  },
  'a Mistral without system messages': {
    tokens: tokensOf.mistral,
    format: 'mistral',
    template: `{{- '<s>' }}{%- set ns = namespace(system='') %}{%- for m in messages %}
{%- if m.role == 'system' %}{%- set ns.system = m.content + '\\n\\n' %}
{%- elif m.role == 'user' %}{{- '[INST] ' + ns.system + m.content + '[/INST]' }}{%- set ns.system = '' %}
{%- else %}{{- ' ' + m.content + '</s>' }}{%- endif %}{%- endfor %}`,
  },
  'a template that knows no roles but the assistant’s': {
    tokens: tokensOf.mistral,
    format: 'mistral',
    template: `{{- '<s>' }}{%- for m in messages %}
{%- if m.role == 'assistant' %}{{- m.content + '</s>' }}{%- else %}{{- '[INST]' + m.content + '[/INST]' }}{%- endif %}
{%- endfor %}`,
  },
  'gpt-oss': {
    tokens: tokensOf.gptOss,
    format: 'gpt_oss',
    template: `{{- '<|start|>system<|message|>You think first.<|end|>' }}{%- for m in messages %}
{%- if m.role == 'system' %}{{- '<|start|>developer<|message|># How to work\\n\\n' + m.content + '<|end|>' }}
{%- elif m.role == 'user' %}{{- '<|start|>user<|message|>' + m.content + '<|end|>' }}
{%- else %}{{- '<|start|>assistant<|channel|>final<|message|>' + m.content }}
{%- if loop.last and not add_generation_prompt %}{{- '<|return|>' }}{%- else %}{{- '<|end|>' }}{%- endif %}
{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- '<|start|>assistant' }}{%- endif %}`,
  },
  'a Gemma': {
    tokens: ['<bos>', '<start_of_turn>', '<end_of_turn>'],
    format: 'hermes',
    template: `{{- '<bos>' }}{%- set ns = namespace(system='') %}{%- for m in messages %}
{%- if m.role == 'system' %}{%- set ns.system = m.content + '\\n\\n' %}{%- else %}
{{- '<start_of_turn>' + ('model' if m.role == 'assistant' else 'user') + '\\n' + ns.system + m.content | trim + '<end_of_turn>\\n' }}
{%- set ns.system = '' %}{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{- '<start_of_turn>model\\n' }}{%- endif %}`,
  },
  'a Phi': {
    tokens: ['<|system|>', '<|user|>', '<|assistant|>', '<|sep|>', '<|end|>'],
    format: 'hermes',
    template: `{%- for m in messages %}{{- '<|im_start|>' + m.role + '<|sep|>' + m.content + '<|end|>' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant<|sep|>' }}{%- endif %}`,
  },
  'a DeepSeek': {
    tokens: ['<｜begin｜>', '<｜end｜>', '<｜User｜>', '<｜Assistant｜>'],
    format: 'hermes',
    template: `{{- '<｜begin｜>' }}{%- for m in messages %}
{%- if m.role == 'system' %}{{- m.content }}{%- elif m.role == 'user' %}{{- '<｜User｜>' + m.content }}
{%- else %}{{- '<｜Assistant｜>' + m.content + '<｜end｜>' }}{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{- '<｜Assistant｜>' }}{%- endif %}`,
  },
} satisfies Record<string, ImitatedModel>;

export type ImitatedName = keyof typeof models;
export const imitatedNames = Object.keys(models) as ImitatedName[];

export function imitatedModel(name: ImitatedName): TextCoder & { source: string; tokens: readonly string[] } {
  const { tokens, template: source, format }: ImitatedModel = models[name];
  const tokenizer = loadTokenizer(withTokens(tokens));
  const template = loadChatTemplate(source, tokenizer);
  return { tokenizer, template, format: toolFormat(format), eosTokens: [], source, tokens };
}
