import { describe, expect, test } from 'vitest';
import {
  formatOfTemplate,
  recordedToolFormat,
  toolFormat,
} from '../../../src/episode/tool-formats/tool-format.js';
import { toolFormatNames } from '../../../src/spec/tool-format-names.js';

// The words by which a template tells the model how to call, as Qwen, Meta, Mistral and OpenAI write them.
test.each([
  ['{{ messages }}', 'hermes'],
  [
    '{%- if tools %}within <tool_call></tool_call> XML tags: <tool_call>\\n{"name": <function-name>',
    'hermes',
  ],
  ['{%- if tools %}<tool_call>\\n<function=example>\\n<parameter=one>', 'qwen_xml'],
  ['{%- if tools %}Environment: ipython ... {"name": function name, "parameters": dictionary', 'llama_json'],
  ['{%- if tools %}[AVAILABLE_TOOLS]{% endif %}[TOOL_CALLS]', 'mistral'],
  ['<|start|>assistant<|channel|>commentary to=functions.{{ tool_calls }}<|call|>', 'gpt_oss'],
  ['{%- if tools %}<tool_call>{function-name}\\n<arg_key>', null],
  ['{%- for call in message.tool_calls %}<｜tool▁calls▁begin｜>', null],
  ['{%- if tools %}<seed:tool_call><function=example>', null],
] as const)('the template %j teaches %s', (template, format) =>
  expect(formatOfTemplate(template)).toBe(format),
);

describe('a run', () => {
  test('finds the format that it recorded', () => {
    for (const name of toolFormatNames) expect(recordedToolFormat(toolFormat(name).id).name).toBe(name);
  });

  test('with a format of another version is refused with the reason', () =>
    expect(() => recordedToolFormat('skyrl/1')).toThrow(/skyrl\/1, which this version does not have/));
});
