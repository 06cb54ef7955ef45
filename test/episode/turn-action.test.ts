import { describe, expect, test } from 'vitest';
import { toolFormat } from '../../src/episode/tool-formats/tool-format.js';
import { actionOf } from '../../src/episode/turn-action.js';
import { toolFormatNames } from '../../src/spec/tool-format-names.js';
import type { ToolFormatName } from '../../src/spec/tool-format-names.js';
import type { ToolSpec } from '../../src/spec/records/task.js';

const tools: ToolSpec[] = [
  {
    name: 'get_weather',
    description: '',
    input_schema: {
      type: 'object',
      properties: {
        city: { type: 'string' },
        days: { type: 'integer' },
        metric: { type: 'boolean' },
        where: { type: 'object' },
        near: { $ref: '#/$defs/Place' } as object,
        note: { type: ['string', 'null'] } as object,
      },
      $defs: { Place: { type: 'object' } },
    },
  },
  { name: 'list_cities', description: '', input_schema: { type: 'object', properties: {} } },
];

function act(text: string, format: ToolFormatName = 'hermes', opensThinking = false) {
  return actionOf(text, toolFormat(format), { opensThinking, tools });
}

const call = (name: string, given: object) => ({ kind: 'call', call: { name, arguments: given } });
const paris = call('get_weather', { city: 'Paris' });
const tagged = '<tool_call>{"name":"get_weather","arguments":{"city":"Paris"}}</tool_call>';
const deleting = '<tool_call>{"name":"delete_issue","arguments":{"id":1}}</tool_call>';

describe('thinking', () => {
  test.each([
    `<think>I could call ${deleting} but that would be wrong.</think> Nothing to do. <done>`,
    `I could call ${deleting} but no.</think> Nothing to do. <done>`,
    `<thinking>${deleting}</thinking>Nothing to do. <done>`,
    `[THINK]${deleting}[/THINK]Nothing to do. <done>`,
  ])('asks for nothing: %s', (text) =>
    expect(act(text)).toEqual({ asked: null, others: 0, isDone: true, answer: 'Nothing to do.' }),
  );

  test('that is not finished has no call, no end and no answer', () => {
    const nothing = { asked: null, isDone: false, answer: '' };
    expect(act(`<think>So: ${tagged} <done>`)).toMatchObject(nothing);
    expect(act(`So: ${tagged} <done>`, 'hermes', true)).toMatchObject(nothing);
  });

  test('does not hide the call after it, even if the thinking mentions calls', () => {
    for (const thought of ['the form is <tool_call> json </tool_call>', deleting, '<tool_call>', '{"name":'])
      expect(act(`<think>${thought}</think>\n${tagged}`)).toMatchObject({ asked: paris, others: 0 });
    expect(act(`the form is <tool_call> json </tool_call></think>\n${tagged}`, 'hermes', true)).toMatchObject(
      {
        asked: paris,
        others: 0,
      },
    );
  });

  test('is not part of the answer, also where the template opened it', () => {
    const answer = 'The answer is 41.';
    expect(act('<think>maybe 42</think>\nThe answer is 41. <done>').answer).toBe(answer);
    expect(act('maybe 42\n</think>\n\nThe answer is 41. <done>', 'hermes', true).answer).toBe(answer);
    expect(act('maybe 42\n</think>\n\nThe answer is 41. <done>').answer).toBe(answer);
    expect(act('<think>a</think>The answer<think>42?</think> is 41.').answer).toBe(answer);
  });

  test('within an argument is text', () => {
    const given = { city: '<think>x</think>' };
    const text = `<tool_call>${JSON.stringify({ name: 'get_weather', arguments: given })}</tool_call>`;
    expect(act(text).asked).toEqual(call('get_weather', given));
    expect(act(text.replace('<think>', '')).asked).toEqual(call('get_weather', { city: 'x</think>' }));
  });
});

describe('a call between tags', () => {
  test.each([
    tagged,
    'I look.\n<tool_call>\n{"tool": "get_weather", "params": {"city": "Paris"}}\n</tool_call> <done>',
    '<function_call>{"name":"get_weather","arguments":{"city":"Paris"}}</function_call>',
    '<tool_call>{"name":"get_weather","arguments":{"city":"Paris"}}',
    '<tool_call>```json\n{"name":"get_weather","arguments":{"city":"Paris"}}\n```\n</tool_call>',
    '<tool_call>{"name":"get_weather","arguments":{"city":"Paris"}}<|im_end|>',
    '<tool_call>[{"name":"get_weather","arguments":{"city":"Paris"}}]</tool_call>',
    '<tool_call>nonsense</tool_call><function_call>{"name":"get_weather","arguments":{"city":"Paris"}}</function_call>',
    '<tool_call>{"name":"get_weather","parameters":{"city":"Paris"}}</tool_call>',
    '<tool_call>{"name":"get_weather","args":{"city":"Paris"}}</tool_call>',
    '<tool_call>{"name":"get_weather","input":{"city":"Paris"}}</tool_call>',
    '<tool_call>{"id":"c1","type":"function","function":{"name":"get_weather","arguments":"{\\"city\\":\\"Paris\\"}"}}</tool_call>',
    '<tool_call>{"function":"get_weather","arguments":"{\\"city\\":\\"Paris\\"}"}</tool_call>',
    '<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>',
  ])('is read from %j', (text) => expect(act(text).asked).toEqual(paris));

  test('without arguments has none, and one with an unknown key is no empty call', () => {
    for (const given of ['', ',"arguments":{}', ',"arguments":null', ',"arguments":"{}"'])
      expect(act(`<tool_call>{"name":"list_cities"${given}}</tool_call>`).asked).toEqual(
        call('list_cities', {}),
      );
    expect(act('<tool_call>{"name":"refund","order_id":7}</tool_call>').asked).toEqual({
      kind: 'malformed',
      problem: '"order_id" is no key of a tool call: put arguments into "arguments"',
    });
  });

  test.each([
    ['{"name":', /not valid JSON/],
    ['{"name":"x"} and more', /behind its JSON/],
    ['[1]', /must be a JSON object/],
    ['[]', /empty/],
    ['{"arguments":{}}', /no "name"/],
    ['{"name":7,"arguments":{}}', /no "name"/],
    ['{"name":"x","arguments":[]}', /"arguments" of the tool call must be/],
    ['{"name":"x","parameters":"Paris"}', /"parameters" of the tool call must be/],
    ['{"name":"x","arguments":{},"parameters":{"a":1}}', /both "arguments" and "parameters"/],
    ['{"name":"x","tool":"y","arguments":{}}', /both "name" and "tool"/],
    ['{"function":{"name":"x"},"order_id":7}', /"order_id" is no key/],
  ])('%s is malformed, and the model gets the reason', (body, problem) => {
    const { asked } = act(`<tool_call>${body}</tool_call>`);
    expect(asked?.kind === 'malformed' && asked.problem).toMatch(problem);
  });

  test('does not end at a closing tag within a string', () => {
    const given = { city: 'a</tool_call>b "{" \\ <done>' };
    const text = `<tool_call>${JSON.stringify({ name: 'get_weather', arguments: given })}</tool_call>`;
    expect(act(text)).toMatchObject({ asked: call('get_weather', given), isDone: false, answer: '' });
  });

  test('beside others is carried out alone, and they are counted', () => {
    expect(act(`${tagged}${deleting}`)).toMatchObject({ asked: paris, others: 1 });
    expect(act(`<tool_call>{"name":</tool_call>${tagged}${deleting}`)).toMatchObject({
      asked: paris,
      others: 2,
    });
    expect(act(`${tagged}<tool_call>oops`)).toMatchObject({ asked: paris, others: 1 });
    expect(act('<tool_call>[{"name":"a"},{"name":"b"}]</tool_call>')).toMatchObject({
      asked: call('a', {}),
      others: 1,
    });
  });

  test('keeps the numbers as they were written', () => {
    const { asked } = act(
      '<tool_call>{"name":"x","arguments":{"id":1915883588174806058,"v":1.0}}</tool_call>',
    );
    expect(asked?.kind === 'call' && asked.call.arguments).toEqual({
      id: expect.objectContaining({ value: '1915883588174806058' }),
      v: expect.objectContaining({ value: '1.0' }),
    });
  });
});

describe('a call of Qwen3-Coder', () => {
  const xml = (parameters: string) =>
    `<tool_call>\n<function=get_weather>\n${parameters}</function>\n</tool_call>`;
  const parameter = (name: string, value: string) => `<parameter=${name}>\n${value}\n</parameter>\n`;

  test('has values of the schema’s types', () => {
    const text = xml(
      parameter('city', '3') +
        parameter('days', '3') +
        parameter('metric', 'True') +
        parameter('where', '{"lat": 1.5}') +
        parameter('near', '{"lat": 2}') +
        parameter('note', 'null') +
        parameter('free', '7'),
    );
    expect(act(text, 'qwen_xml').asked).toEqual(
      call('get_weather', {
        ...{ city: '3', days: 3, metric: true, where: { lat: 1.5 }, near: { lat: 2 }, note: null, free: '7' },
      }),
    );
  });

  test('keeps lines, spaces and tags of a value', () => {
    for (const value of ['a\n\n b ', '<b>x</b>', '</parameter> said he', '', '"quoted"', '</tool_call>'])
      expect(act(xml(parameter('city', value)), 'qwen_xml').asked).toEqual(
        call('get_weather', { city: value }),
      );
  });

  test('may lack its outer tags', () =>
    expect(
      act('<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>', 'qwen_xml').asked,
    ).toEqual(paris));

  test.each([
    [xml(parameter('days', 'three')), /"days" must be of type integer/],
    [xml(parameter('city', 'a') + parameter('city', 'b')), /"city" stands twice/],
    [xml('<parameter=city>\nParis\n'), /"city" has no <\/parameter>/],
    ['<tool_call>\n<function=get_weather>\nParis\n</function>\n</tool_call>', /needs <parameter=NAME>/],
    ['<tool_call>\n<function=>\n</function></tool_call>', /has no name/],
  ])('%j is malformed', (text, problem) => {
    const { asked } = act(text, 'qwen_xml');
    expect(asked?.kind === 'malformed' && asked.problem).toMatch(problem);
  });
});

describe('a call of Llama 3', () => {
  test.each([
    '{"name": "get_weather", "parameters": {"city": "Paris"}}',
    '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}',
    '{"type": "function", "name": "get_weather", "parameters": {"city": "Paris"}}<|eom_id|>',
    'I look:\n{"name": "get_weather", "parameters": {"city": "Paris"}}',
  ])('is read from %j', (text) => expect(act(text, 'llama_json').asked).toEqual(paris));

  test('beside others, divided by semicolons, is counted', () =>
    expect(
      act(
        '{"name": "get_weather", "parameters": {"city": "Paris"}}; {"name": "list_cities", "parameters": {}}',
        'llama_json',
      ),
    ).toMatchObject({ asked: paris, others: 1 }));

  test('is not any JSON that is an answer', () => {
    for (const text of [
      '{"name": "Bob", "age": 3}',
      '{"total": 7} <done>',
      'it is {"name":"x","parameters":{}}',
    ])
      expect(act(text, 'llama_json').asked).toBeNull();
    expect(act('{"name": "list_cities"}', 'llama_json').asked).toEqual(call('list_cities', {}));
  });

  test('that is cut short, or code, is malformed', () => {
    expect(act('{"name": "get_weather", "parameters": {"city"', 'llama_json').asked?.kind).toBe('malformed');
    expect(act('<|python_tag|>print(1)', 'llama_json').asked?.kind).toBe('malformed');
  });
});

describe('a call of Mistral', () => {
  test.each([
    '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "a1b2c3d4e"}]</s>',
    '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}}]',
    '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}',
    '[TOOL_CALLS]get_weather[CALL_ID]a1b2c3d4e[ARGS]{"city": "Paris"}',
    '[THINK]or[TOOL_CALLS]delete[ARGS]{}?[/THINK][TOOL_CALLS]get_weather{"city": "Paris"}',
  ])('is read from %j', (text) => expect(act(text, 'mistral')).toMatchObject({ asked: paris, others: 0 }));

  test('beside others is counted', () => {
    const two = '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]list_cities[ARGS]{}';
    expect(act(two, 'mistral')).toMatchObject({ asked: paris, others: 1 });
  });

  test('that is cut short is malformed', () =>
    expect(act('[TOOL_CALLS]get_weather[ARGS]{"city"', 'mistral').asked?.kind).toBe('malformed'));
});

describe('a call of gpt-oss', () => {
  const thought =
    '<|channel|>analysis<|message|>maybe <done> to=functions.delete 42<|end|><|start|>assistant';
  test.each([
    `${thought}<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city":"Paris"}<|call|>`,
    `${thought} to=functions.get_weather<|channel|>commentary json<|message|>{"city":"Paris"}`,
  ])('is read from %j', (text) =>
    expect(act(text, 'gpt_oss')).toMatchObject({ asked: paris, isDone: false }),
  );

  test('is not read from the analysis, and only the final message is the answer', () => {
    expect(act(`${thought}<|channel|>final<|message|>It is 41. <done><|return|>`, 'gpt_oss')).toEqual({
      ...{ asked: null, others: 0, isDone: true, answer: 'It is 41.' },
    });
    expect(act('<|channel|>analysis<|message|>It is 42. <done>', 'gpt_oss')).toMatchObject({
      ...{ asked: null, isDone: false, answer: '' },
    });
  });

  test('with broken arguments is malformed', () =>
    expect(
      act('<|channel|>commentary to=functions.get_weather<|message|>{"city"<|call|>', 'gpt_oss').asked?.kind,
    ).toBe('malformed'));
});

test('both marks of the end are recognised, in upper or lower case, and not within a call', () => {
  for (const text of ['<done>', 'All set. <DONE>', '[Done]', '<tool_call>finish <done>'])
    expect(act(text).isDone).toBe(true);
  expect(act('done').isDone).toBe(false);
  expect(act('The total is 7. <done><|im_end|>').answer).toBe('The total is 7.');
  expect(act('<tool_call>{"name":"x"}</tool_call>').answer).toBe('');
});

/** By each format's own words. */
const written: Record<ToolFormatName, (city: string) => string> = {
  hermes: (city) =>
    `<think>hm</think>Look.\n<tool_call>\n${JSON.stringify({ name: 'get_weather', arguments: { city } })}\n</tool_call>`,
  qwen_xml: (city) =>
    `Look.\n<tool_call>\n<function=get_weather>\n<parameter=city>\n${city}\n</parameter>\n</function>\n</tool_call>`,
  llama_json: (city) => JSON.stringify({ name: 'get_weather', parameters: { city } }),
  mistral: (city) => `Look.[TOOL_CALLS]${JSON.stringify([{ name: 'get_weather', arguments: { city } }])}`,
  gpt_oss: (city) =>
    `<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>${JSON.stringify({ city })}<|call|>`,
};

describe.each(toolFormatNames)('%s', (format) => {
  test('reads exactly the call that was written, with any text in it', () => {
    for (const city of [
      'Paris',
      'a"b\\',
      '</tool_call>',
      '{',
      '<done>',
      '<think>',
      'ünïcode 🙂',
      '; {"name":"x"}',
    ])
      expect(act(written[format](city), format)).toMatchObject({
        asked: call('get_weather', { city }),
        ...{ others: 0, isDone: false },
      });
  });

  test('reads each of 200 mutations as a call of the same tool, or gives one reason, and never drops an argument', () => {
    let state = 1;
    const below = (limit: number): number => (state = (state * 48_271) % 2_147_483_647) % limit;
    const pieces = [
      '{',
      '}',
      '"',
      '\\',
      '<tool_call>',
      '</tool_call>',
      '<think>',
      '</think>',
      '[',
      ']',
      ',',
      '\n',
      '',
    ];
    const text = written[format]('Paris');
    for (let round = 0; round < 200; round++) {
      const [at, length] = [below(text.length + 1), below(4)];
      const mutated = text.slice(0, at) + pieces[below(pieces.length)]! + text.slice(at + length);
      const { asked } = act(mutated, format);
      if (asked?.kind === 'malformed') expect(asked.problem).toMatch(/\w{4}/);
      if (asked?.kind !== 'call') continue;
      // A mutated key may be another argument; an argument that is there is never lost.
      if (mutated.includes('Paris'))
        expect([mutated, Object.keys(asked.call.arguments).length]).toEqual([mutated, 1]);
    }
  });
});
