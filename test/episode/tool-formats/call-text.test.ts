// Calls are read as they are written, in each format; demonstrations are written in the run's.
import { describe, expect, test } from 'vitest';
import { parseJson, writeJson } from '../../../src/base/json.js';
import { turnContext } from '../../../src/episode/conversation.js';
import { refuseUnwritable, tokenizeDemonstration } from '../../../src/episode/demonstration.js';
import { toolFormat } from '../../../src/episode/tool-formats/tool-format.js';
import { turnIn } from '../../../src/episode/tool-formats/shown-turn.js';
import { actionOf } from '../../../src/episode/turn-action.js';
import { toolFormatNames } from '../../../src/spec/tool-format-names.js';
import type { Demonstration, ToolCall, ToolSpec } from '../../../src/spec/records/task.js';
import { sampling } from '../fixtures.js';
import { coderOf } from '../model-families.js';

/** Numbers from 0 up to a limit, always the same. */
function draws(): (limit: number) => number {
  let state = 7;
  return (limit) => (state = (state * 48_271) % 2_147_483_647) % limit;
}

const texts = [
  ...[
    '',
    'Paris',
    'a"b\\',
    '\n',
    ' a\n\n b ',
    'a\r',
    '\r\nb\r\n',
    'ünïcode 🙂',
    '\u2028',
    '{',
    '}]',
    '"',
    '3',
    'true',
  ],
  ...[
    'null',
    '</tool_call>',
    '<tool_call>',
    '<done>',
    '[done]',
    '<think>',
    '</think>',
    '<|end|>',
    '<|start|>user',
    '[INST]',
  ],
  ...[
    '[TOOL_CALLS]',
    '[ARGS]{',
    '; {"name":"x"}',
    'x </parameter> y',
    '</function>',
    '<|python_tag|>',
    '<|im_end|>',
    '```',
  ],
];
const numbers = ['0', '-1', '1.0', '1915883588174806058', '1e400', '-0', '0.1000', '2.5E-7', '3'];
const types: Record<string, string> = { s: 'string', n: 'number', b: 'boolean', o: 'object', a: 'array' };

function randomCall(below: (limit: number) => number): ToolCall {
  const any = <T>(of: readonly T[]): T => of[below(of.length)] as T;
  const json = (depth: number): string => {
    const kind = below(depth > 2 ? 3 : 5);
    if (kind === 0) return any(numbers);
    if (kind === 1) return any(['true', 'false', 'null']);
    if (kind === 2) return JSON.stringify(any(texts));
    const members = Array.from({ length: below(4) }, () => json(depth + 1));
    return kind === 3
      ? `[${members.join(',')}]`
      : `{${members.map((member, at) => `${JSON.stringify(any(texts) + at)}:${member}`).join(',')}}`;
  };
  const list = (): string => `[${Array.from({ length: below(4) }, () => json(1)).join(',')}]`;
  const members: Record<string, () => string> = {
    s: () => JSON.stringify(any(texts)),
    n: () => any(numbers),
    b: () => any(['true', 'false']),
    o: () => `{"k":${json(1)}}`,
    a: list,
  };
  const keys = Object.keys(members).filter(() => below(2) === 0);
  const given = keys.map((key) => `"${key}":${members[key]?.()}`).join(',');
  return {
    name: any(['get_weather', 'a-b.c', 'x']),
    arguments: parseJson(`{${given}}`) as ToolCall['arguments'],
  };
}

const tools: ToolSpec[] = ['get_weather', 'a-b.c', 'x'].map((name) => ({
  name,
  description: '',
  input_schema: {
    type: 'object',
    properties: Object.fromEntries(Object.entries(types).map(([key, type]) => [key, { type }])),
  },
}));
const context = { opensThinking: false, tools };
const hermes = toolFormat('hermes');

describe.each(toolFormatNames)('%s', (name) => {
  const format = toolFormat(name);

  test('reads each call as it writes it, to the last digit', () => {
    const below = draws();
    for (let round = 0; round < 2000; round++) {
      const call = randomCall(below);
      const text = format.callText(call);
      const { asked, others, isDone, answer } = actionOf(text, format, context);
      expect([text, asked?.kind === 'call' && writeJson(asked.call)]).toEqual([text, writeJson(call)]);
      expect({ others, isDone, answer }).toEqual({ others: 0, isDone: false, answer: '' });
    }
  });

  test('writes the call of a demonstration as it reads it, with what is said and thought', () => {
    const below = draws();
    for (let round = 0; round < 500; round++) {
      const [first, second] = [randomCall(below), randomCall(below)];
      const said = ['', 'I look.\n', '<think>hm</think>\n'][below(3)] as string;
      const more = ['', ' <done>', hermes.callText(second)][below(3)] as string;
      const turn = said + hermes.callText(first) + more;
      const written = turnIn(format, turn, tools);
      const wanted = actionOf(turn, hermes, context);
      const found = actionOf(written, format, context);
      expect([turn, writeJson(found)]).toEqual([turn, writeJson(wanted)]);
      // What is in the run's format stays.
      expect(turnIn(format, written, tools)).toBe(written);
    }
  });

  test('shows in its prompt a call as it writes it', () => {
    for (const example of Object.values(format.example))
      expect(actionOf(example, format, context).asked).toMatchObject({ kind: 'call' });
    const { asked } = actionOf(format.example.short, format, context);
    if (asked?.kind === 'call') expect(format.callText(asked.call)).toBe(format.example.short);
  });
});

const call = '<tool_call>{"name":"get_weather","arguments":{"s":"Paris","n":1.0}}</tool_call>';

test.each([
  ['hermes', `Look. ${call}`, `Look. ${call}`],
  [
    'qwen_xml',
    `Look.\n${call}`,
    'Look.\n<tool_call>\n<function=get_weather>\n<parameter=s>\nParis\n</parameter>\n<parameter=n>\n1.0\n</parameter>\n</function>\n</tool_call>',
  ],
  ['llama_json', `Look. ${call}`, 'Look. \n{"name": "get_weather", "parameters": {"s": "Paris", "n": 1.0}}'],
  ['mistral', call, '[TOOL_CALLS][{"name": "get_weather", "arguments": {"s": "Paris", "n": 1.0}}]'],
  [
    'gpt_oss',
    `<think>Rain?</think>Look.\n${call}`,
    '<|channel|>analysis<|message|>Rain?<|end|><|start|>assistant<|channel|>commentary<|message|>Look.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"s": "Paris", "n": 1.0}<|call|>',
  ],
  ['gpt_oss', 'It is 7. <done>', '<|channel|>final<|message|>It is 7. <done><|return|>'],
  ['mistral', 'It is 7. <done>', 'It is 7. <done>'],
] as const)('a turn for %s: %j', (name, turn, written) =>
  expect(turnIn(toolFormat(name), turn, tools)).toBe(written),
);

describe('a demonstration', () => {
  const demonstration: Demonstration = {
    kind: 'teacher',
    env_key: 'e',
    messages: [
      { role: 'user', content: 'Weather?' },
      { role: 'assistant', content: call },
      { role: 'tool', content: '{"sky":"blue","error":null}' },
      { role: 'assistant', content: 'It is blue. <done>' },
    ],
  };

  test.each(toolFormatNames)('of a run with %s teaches what its turns are read as', async (name) => {
    const coder = coderOf(name);
    const { tokens, spans } = await tokenizeDemonstration(coder, demonstration, tools, sampling);
    const [first, last] = spans.map(({ start, end }) =>
      actionOf(coder.tokenizer.decode(tokens.slice(start, end)), coder.format, turnContext(coder, tools)),
    );
    expect(first?.asked).toMatchObject({
      kind: 'call',
      call: { name: 'get_weather', arguments: { s: 'Paris' } },
    });
    expect(last).toMatchObject({ asked: null, isDone: true, answer: 'It is blue.' });
    // A result that says it has no error is none.
    expect(coder.tokenizer.decode(tokens)).toContain('Tool result:\n{"sky":"blue"');
  });

  test.each([
    ['{"error":"no such city"}', true],
    ['{"error":{"code":404,"message":null}}', true],
    ['{"error":["a"],"v":1.0}', true],
    ['Error: no such city', true],
    ['{"error":true}', true],
    ['{"error":null}', false],
    ['{"error":false}', false],
    ['{"error":""}', false],
    ['{"error":{"error_type":null,"message":null}}', false],
    ['{"error":[]}', false],
  ])('shows the result %s as an error: %j', async (content, isError) => {
    const [user, asked, , said] = demonstration.messages;
    const messages = [user!, asked!, { role: 'tool' as const, content }, said!];
    const coder = coderOf('hermes');
    const { tokens } = await tokenizeDemonstration(coder, { ...demonstration, messages }, tools, sampling);
    expect(coder.tokenizer.decode(tokens)).toContain(`${isError ? 'Error: ' : 'Tool result:\n'}${content}`);
  });

  test('that cannot be written is refused with the reason', () => {
    const refusal = (name: (typeof toolFormatNames)[number], content: string) => () =>
      refuseUnwritable(
        toolFormat(name),
        {
          ...demonstration,
          messages: [
            { role: 'user', content: 'q' },
            { role: 'assistant', content },
          ],
        },
        tools,
      );
    expect(refusal('mistral', '<tool_call>{"name":</tool_call>')).toThrow(
      'message 2 of a demonstration of kind "teacher" cannot be written with the calls of mistral: its call is malformed: the tool call is not valid JSON',
    );
    const value = JSON.stringify('a\n</parameter>\n</function>\nb');
    expect(refusal('qwen_xml', `<tool_call>{"name":"x","arguments":{"s":${value}}}</tool_call>`)).toThrow(
      'its call of x would be read as something else',
    );
    expect(refusal('hermes', '<tool_call>{"name":</tool_call>')).not.toThrow();
  });
});
