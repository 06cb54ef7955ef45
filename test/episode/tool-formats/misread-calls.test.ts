// Turns of real models that could be read as another call, as an empty one, or as the end.
import { describe, expect, test } from 'vitest';
import { readTools } from '../../../src/environments/tool-results.js';
import { toolFormat } from '../../../src/episode/tool-formats/tool-format.js';
import { actionOf } from '../../../src/episode/turn-action.js';
import type { ToolFormatName } from '../../../src/spec/tool-format-names.js';
import type { ToolSpec } from '../../../src/spec/records/task.js';

const nullable = (schema: object) => ({ anyOf: [schema, { type: 'null' }] });
const tools = [
  {
    name: 'refund',
    description: '',
    input_schema: {
      type: 'object',
      properties: {
        id: { type: 'integer' },
        note: { type: ['string', 'null'] },
        effort: nullable({ type: 'string', enum: ['none', 'None', 'low'] }),
        count: { type: 'integer', nullable: true },
        three: { const: 3 },
        tags: { items: { type: 'string' } },
        where: { properties: { a: { type: 'integer' } } },
        near: { allOf: [{ $ref: '#/$defs/Place' }, { description: 'a place' }] },
        half: { allOf: [{ type: ['number', 'string'] }, { type: 'number' }] },
        level: { enum: ['low', 2, 2.5, null] },
        loop: { $ref: '#/$defs/Loop' },
      },
      $defs: { Place: { type: 'object' }, Loop: { anyOf: [{ $ref: '#/$defs/Loop' }, { type: 'integer' }] } },
    },
  },
  { name: 'list_all', description: '', input_schema: { type: 'object', properties: {} } },
] as unknown as ToolSpec[];

function act(text: string, format: ToolFormatName = 'hermes', opensThinking = false) {
  return actionOf(text, toolFormat(format), { opensThinking, tools });
}
const call = (given: object, name = 'refund') => ({ kind: 'call', call: { name, arguments: given } });
const tagged = (json: string) => `<tool_call>${json}</tool_call>`;
const refund = '{"name": "refund", "parameters": {"id": 1}}';

describe('an argument beside the others is never dropped', () => {
  test.each([
    ['{"name":"refund","id":7}', 'id'],
    ['{"name":"refund","id":"7"}', 'id'],
    ['{"name":"refund","type":"full","id":7}', 'type'],
    ['{"name":"refund","type":"function","index":3}', 'index'],
    ['{"name":"refund","call_id":"c"}', 'call_id'],
    ['{"function":{"name":"refund","id":7}}', 'id'],
    ['{"name":"refund","arguments":{},"id":7}', 'id'],
    ['{"name":"refund","arguments":{},"id":1915883588174806058}', 'id'],
    ['{"name":"refund","arguments":{"id":7},"type":"full"}', 'type'],
    ['{"function":{"name":"refund","arguments":{}},"index":"a"}', 'index'],
  ])('%s', (json, key) =>
    expect(act(tagged(json)).asked).toEqual({
      kind: 'malformed',
      problem: `"${key}" is no key of a tool call: put arguments into "arguments"`,
    }),
  );

  test.each([
    '{"name":"refund","arguments":{"id":7},"id":"call_1","type":"function","index":0}',
    '{"type":"tool_use","id":"toolu_1","name":"refund","input":{"id":7}}',
    '{"id":"c1","type":"function","index":0,"function":{"name":"refund","arguments":"{\\"id\\":7}"}}',
    '{"name":"refund","arguments":{"id":7},"id":null}',
  ])('and what names a call is none: %s', (json) => expect(act(tagged(json)).asked).toEqual(call({ id: 7 })));

  test('in Llama’s format neither; it gets the reason if the name is a tool’s', () => {
    expect(act('{"name": "refund", "id": 7}', 'llama_json').asked?.kind).toBe('malformed');
    expect(act('{"name": "Bob", "id": 7} <done>', 'llama_json')).toMatchObject({ asked: null, isDone: true });
  });
});

describe('a key that occurs twice with different values is reported', () => {
  const twice: [ToolFormatName, string, string][] = [
    ['hermes', tagged('{"name":"refund","arguments":{"id":1,"id":2}}'), 'id'],
    ['hermes', tagged('{"name":"list_all","name":"refund","arguments":{"id":1}}'), 'name'],
    ['hermes', tagged('{"name":"refund","arguments":{"where":{"a":1.0,"a":1}}}'), 'a'],
    ['llama_json', '{"name":"refund","parameters":{"id":1,"id":2}}', 'id'],
    ['mistral', '[TOOL_CALLS]refund[ARGS]{"id":1,"id":2}', 'id'],
    ['gpt_oss', '<|channel|>commentary to=functions.refund<|message|>{"id":1,"id":2}<|call|>', 'id'],
  ];
  test.each(twice)('%s: %s', (format, text, key) =>
    expect(act(text, format).asked).toEqual({
      kind: 'malformed',
      problem: `"${key}" stands twice in the tool call`,
    }),
  );

  test('and one with equal values is accepted', () =>
    expect(act(tagged('{"name":"refund","arguments":{"id":1,"id":1}}')).asked).toEqual(call({ id: 1 })));
});

describe('a parameter of Qwen3-Coder', () => {
  const xml = (key: string, value: string) =>
    `<tool_call>\n<function=refund>\n<parameter=${key}>\n${value}\n</parameter>\n</function>\n</tool_call>`;
  test.each([
    ['note', 'none', 'none'],
    ['note', 'NULL', 'NULL'],
    ['note', 'null', null],
    ['note', 'None', null],
    ['effort', 'none', 'none'],
    ['effort', 'None', 'None'],
    ['effort', 'null', null],
    ['count', 'null', null],
    ['count', 'none', null],
    ['count', '7', 7],
    ['three', '3', 3],
    ['tags', '["a"]', ['a']],
    ['where', '{"a": 1}', { a: 1 }],
    ['near', '{"a": 1}', { a: 1 }],
    ['half', '0.5', 0.5],
    ['level', '2', 2],
    ['level', 'low', 'low'],
    ['level', 'null', null],
    ['loop', '3', '3'],
    ['constructor', '3', '3'],
  ])('%s: %s is %j', (key, written, value) =>
    expect(act(xml(key, written), 'qwen_xml').asked).toEqual(call({ [key]: value })),
  );

  test.each([
    ['count', 'many', 'integer'],
    ['half', 'much', 'number'],
    ['tags', 'a', 'array'],
    ['where', '3', 'object'],
    ['three', 'three', 'integer'],
  ])('%s may not be %s', (key, written, type) =>
    expect(act(xml(key, written), 'qwen_xml').asked).toMatchObject({
      problem: `the parameter "${key}" must be of type ${type}`,
    }),
  );

  test('ends where the next one begins, if its closing tag was forgotten', () => {
    const forgotten =
      '<tool_call>\n<function=refund>\n<parameter=note>\nParis\n<parameter=id>\n3\n</parameter>\n</function>\n</tool_call>';
    expect(act(forgotten, 'qwen_xml').asked).toEqual(call({ note: 'Paris', id: 3 }));
    expect(act(forgotten.replaceAll('\n', '\r\n'), 'qwen_xml').asked).toEqual(call({ note: 'Paris', id: 3 }));
    // The tag of no parameter, or one within a line, is text.
    for (const value of ['a\n<parameter=x>', 'a <parameter=id>', '<parameter=note>'])
      expect(act(xml('note', value), 'qwen_xml').asked).toEqual(call({ note: value }));
  });

  test('may have its name in quotes', () => {
    const quoted = xml('id', '3').replace('=refund', '="refund"').replace('=id', "='id'");
    expect(act(quoted, 'qwen_xml').asked).toEqual(call({ id: 3 }));
  });

  test('does not reach into the next call', () => {
    const open = '<tool_call>\n<function=refund>\n<parameter=note>\nParis\n</function>\n</tool_call>\n';
    const { asked, others } = act(open + xml('id', '3'), 'qwen_xml');
    expect({ asked, others }).toEqual({ asked: call({ id: 3 }), others: 1 });
  });

  test('has the type that a referred or composed schema gives it', () => {
    const Args = { type: 'object', properties: { id: { type: 'integer' } } };
    for (const schema of [
      { $ref: '#/$defs/Args', $defs: { Args } },
      { type: 'object', allOf: [Args, { required: ['id'] }] },
      { anyOf: [{ type: 'object' }, Args] },
    ]) {
      const own = readTools([{ name: 'refund', inputSchema: { properties: {}, ...schema } }]);
      const context = { opensThinking: false, tools: own };
      expect(actionOf(xml('id', '3'), toolFormat('qwen_xml'), context).asked).toEqual(call({ id: 3 }));
    }
  });
});

describe('Llama', () => {
  test.each([
    `Here is what I did:\n{"calls": [\n${refund}\n]}\n<done>`,
    `{"type": "report", "steps": [\n${refund}\n]} <done>`,
    `{"name": "plan", "steps": [\n${refund},\n${refund}\n]} <done>`,
    `{"calls": [\n${refund},\n]} <done>`,
    `{"calls": [ // steps\n${refund}\n]} <done>`,
    `["first",\n${refund}\n] <done>`,
    `{"calls": [\n${refund}\n <done>`,
    '{"name": "refund", "parameters": {"type": "object", "properties": {"id": {}}}} <done>',
  ])('does not carry out a call that its answer quotes: %j', (text) =>
    expect(act(text, 'llama_json')).toMatchObject({ asked: null, isDone: true }),
  );

  test('keeps JSON of an answer as it was written', () =>
    expect(act(`It is:\n{"a": [\n${refund}\n]}\n<done>`, 'llama_json').answer).toBe(
      `It is:\n{"a": [\n${refund}\n]}`,
    ));

  test.each([
    [`${refund}, {"name": "list_all", "parameters": {}}`, 1],
    [`${refund};{"name": "list_all"}`, 1],
    [`[${refund}, ${refund}, ${refund}]`, 2],
    [`[\n${refund}\n]`, 0],
    [`<|python_tag|>[${refund}]`, 0],
    [`{city} is it.\n${refund}`, 0],
    [`[1] is it.\n${refund}`, 0],
    [`{"total": 3}\n${refund}`, 0],
  ])('carries out the first call, and counts the others: %j', (text, others) =>
    expect(act(text, 'llama_json')).toMatchObject({ asked: call({ id: 1 }), others }),
  );

  test.each(['<|python_tag|>[refund(id=1)]', '<|python_tag|>print(1)', '<|python_tag|>[]', '<|python_tag|>'])(
    'gets the reason for code: %j',
    (text) => expect(act(text, 'llama_json').asked?.kind).toBe('malformed'),
  );
});

test('further calls of Mistral after a comma are counted, and are no part of the answer', () => {
  const one = '{"name": "refund", "arguments": {"id": 1}}';
  expect(act(`[TOOL_CALLS]${one}, ${one}`, 'mistral')).toMatchObject({
    ...{ asked: call({ id: 1 }), others: 1, answer: '' },
  });
});

describe('thinking', () => {
  const deleting = tagged('{"name":"delete_issue","arguments":{"id":1}}');
  test.each([
    [`<think>a <think>b</think> maybe 42 ${deleting}</think> 41 <done>`, false],
    [`<think>a</think> maybe 42 ${deleting}</think> 41 <done>`, false],
    ['a </think> maybe 42 </think> 41 <done>', true],
    ['[THINK]a [THINK]b[/THINK] 42[/THINK] 41 <done>', false],
  ])('reaches to its last closing tag: %j', (text, opensThinking) =>
    expect(act(text, 'hermes', opensThinking)).toEqual({
      ...{ asked: null, others: 0, isDone: true, answer: '41' },
    }),
  );
});

test.each(['hermes', 'qwen_xml', 'llama_json', 'mistral', 'gpt_oss'] as const)(
  'a call of %s with 4,000 lists in each other is one malformed call',
  (name) => {
    for (const number of ['', '1', '1.0']) {
      const deep = `${'['.repeat(4000)}${number}${']'.repeat(4000)}`;
      const text = toolFormat(name).callText({ name: 'refund', arguments: { where: 'HERE' } });
      const turn = text.replace('"HERE"', deep).replace('HERE', deep);
      expect(act(turn, name)).toMatchObject({ asked: { kind: 'malformed' }, others: 0 });
    }
  },
);

describe('the end', () => {
  const one = tagged('{"name":"list_all","arguments":{}}');
  test.each([
    [`I call it, then say <done>. ${one}`, false],
    [`[done] find it\n[ ] refund it\n${one}`, false],
    [`[done] find it\n[ ] refund it`, false],
    [`${one} <done>`, true],
    [`${one} All set. [DONE]\n`, true],
    ['<done> It is 41.', true],
    ['<tool_call>oops <done>', true],
  ])('of %j is meant: %j', (text, isDone) => expect(act(text).isDone).toBe(isDone));
});

test('a mark that is no token of the model stays in the answer', () => {
  const isToken = (mark: string): boolean => mark === '<|im_end|>';
  const context = { opensThinking: false, tools, isToken };
  const { answer } = actionOf('Use the tag <|foo|> here.<|im_end|> <done>', toolFormat('hermes'), context);
  expect(answer).toBe('Use the tag <|foo|> here.');
});

test('messages that gpt-oss writes in the name of others are no answer, no call and no end', () => {
  const final = '<|channel|>final<|message|>It is 41.<|end|>';
  for (const more of [
    '<|start|>user<|message|>And? <done><|end|><|start|>assistant',
    '<|start|>functions.refund to=assistant<|channel|>commentary<|message|>{"ok":true}<|end|>',
    '<|start|>assistant',
  ])
    expect(act(final + more, 'gpt_oss')).toEqual({
      ...{ asked: null, others: 0, isDone: false, answer: 'It is 41.' },
    });
});
