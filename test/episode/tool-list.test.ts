// Signatures of tools, from the schemas of all kinds that servers publish.
import { toolFormat } from '../../src/episode/tool-formats/tool-format.js';
import { describe, expect, it } from 'vitest';
import { appByName } from '../../examples/apps/registry.js';
import { parseServerJson } from '../../src/base/json.js';
import { leftOutTools, readTools } from '../../src/environments/tool-results.js';
import { systemPrompt } from '../../src/episode/system-prompt.js';
import { toolListText } from '../../src/episode/tool-list.js';
import type { ToolSpec } from '../../src/spec/records/task.js';

function signatureOf(properties: unknown, more: object = {}): string {
  const schema = { type: 'object', properties, ...more };
  return toolListText(readTools([{ name: 'f', description: '', inputSchema: schema }]), 'signatures');
}

/** The list of a server's tools, from the bytes of its answer. */
function listed(schema: string, format: Parameters<typeof toolListText>[1]): string {
  const tools = parseServerJson(`[{"name": "f", "description": "", "inputSchema": ${schema}}]`);
  return toolListText(readTools(tools), format);
}

const definitions = {
  $defs: {
    Address: {
      type: 'object',
      properties: { city: { type: 'string' }, zip: { type: 'integer' } },
      required: ['city'],
    },
    Node: {
      type: 'object',
      properties: {
        value: { type: 'number' },
        next: { anyOf: [{ $ref: '#/$defs/Node' }, { type: 'null' }] },
      },
    },
    Loop: { $ref: '#/$defs/Loop' },
    'a/b': { enum: [1, 2] },
  },
};

describe('numbers are shown as the server wrote them', () => {
  it.each([
    ['{"enum": [1915883588174806058, 1.0, 1e3, 2]}', 'f(x?: 1915883588174806058|1.0|1e3|2)'],
    ['{"const": 0.10}', 'f(x?: 0.10)'],
    ['{"anyOf": [{"const": 1915883588174806058}, {"type": "null"}]}', 'f(x?: 1915883588174806058|null)'],
    ['{"enum": [[1.0], {"id": 1915883588174806058}]}', 'f(x?: [1.0]|{"id":1915883588174806058})'],
    ['{"items": {"enum": [1.0]}}', 'f(x?: list[1.0])'],
    ['{"type": "number", "default": 1.0}', 'f(x?: float)'],
  ])('in a signature: %s', (property, signature) => {
    expect(listed(`{"properties": {"x": ${property}}}`, 'signatures')).toBe(signature);
  });

  it.each(['openai', 'json'] as const)('in a list of the format %s, wherever they stand', (format) => {
    const kept = ['1915883588174806058', '1.0', '-0.0', '1E5', '12345678901234567890.5'];
    const [id, one, zero, large, long] = kept as [string, string, string, string, string];
    const text = listed(
      `{"properties": {"x": {"enum": [${id}], "default": ${one}, "minimum": ${zero}, "examples": [{"a": ${large}}]}}, "x-limit": ${long}}`,
      format,
    );
    for (const number of kept) expect(text).toMatch(new RegExp(`[ \\n]${number.replace('.', '\\.')}[,\\n]`));
    expect(text).not.toContain('LosslessNumber');
  });

  it.each(['openai', 'json'] as const)('and all else of the format %s as before', (format) => {
    const tools = readTools([
      {
        name: 'f',
        description: 'é "x"\n',
        inputSchema: { properties: { a: { enum: [] }, b: {} }, required: [] },
      },
    ]);
    const [{ name, description, input_schema: parameters }] = tools as [ToolSpec];
    const openai = [{ type: 'function', function: { name, description, parameters } }];
    expect(toolListText(tools, format)).toBe(JSON.stringify(format === 'openai' ? openai : tools, null, 2));
  });
});

describe('a signature keeps', () => {
  it.each([
    ['a string', { type: 'string' }, 'f(x?)'],
    ['a number', { type: 'integer' }, 'f(x?: int)'],
    ['an enumeration', { type: 'string', enum: ['open', 'closed'] }, 'f(x?: "open"|"closed")'],
    ['an enumeration with null', { enum: ['a', null, 3] }, 'f(x?: "a"|null|3)'],
    ['one value', { const: 'x' }, 'f(x?: "x")'],
    ['null of pydantic', { anyOf: [{ type: 'integer' }, { type: 'null' }] }, 'f(x?: int|null)'],
    ['null of OpenAPI', { type: 'string', nullable: true }, 'f(x?: str|null)'],
    ['a list of types', { type: ['string', 'integer', 'null'] }, 'f(x?: str|int|null)'],
    ['unions in unions', { oneOf: [{ type: ['integer', 'null'] }, { type: 'null' }] }, 'f(x?: int|null)'],
    ['items', { type: 'array', items: { type: 'string' } }, 'f(x?: list[str])'],
    [
      'items of items',
      { type: 'array', items: { type: 'array', items: { type: 'integer' } } },
      'f(x?: list[list[int]])',
    ],
    [
      'items that may be null',
      { type: ['array', 'null'], items: { type: 'integer' } },
      'f(x?: list[int]|null)',
    ],
    ['items of any type', { type: 'array' }, 'f(x?: list)'],
    ['places of a list', { type: 'array', prefixItems: [{ type: 'number' }, {}] }, 'f(x?: list[float, any])'],
    ['an object', { type: 'object' }, 'f(x?: dict)'],
    [
      'an object’s values',
      { type: 'object', additionalProperties: { type: 'integer' } },
      'f(x?: dict[str, int])',
    ],
    ['a reference', { $ref: '#/$defs/Address' }, 'f(x?: {city: str, zip?: int})'],
    [
      'references in a list',
      { type: 'array', items: { $ref: '#/$defs/Address' } },
      'f(x?: list[{city: str, zip?: int}])',
    ],
    [
      'a reference in allOf',
      { allOf: [{ $ref: '#/$defs/Address' }], default: null },
      'f(x?: {city: str, zip?: int})',
    ],
    ['a reference with an escaped name', { $ref: '#/$defs/a~1b' }, 'f(x?: 1|2)'],
    ['a reference with a sign that encodes nothing', { $ref: '#/$defs/50%' }, 'f(x?: 50%)'],
    ['a cycle', { $ref: '#/$defs/Node' }, 'f(x?: {value?: float, next?: Node|null})'],
    ['a reference to itself', { $ref: '#/$defs/Loop' }, 'f(x?: Loop)'],
    ['a reference to nothing', { $ref: '#/$defs/Missing' }, 'f(x?: Missing)'],
    ['a type without a short form', { type: 'constructor' }, 'f(x?: constructor)'],
  ])('%s', (_, property, signature) => {
    expect(signatureOf({ x: property }, definitions)).toBe(signature);
  });

  it.each([
    null,
    true,
    false,
    {},
    [],
    'text',
    3,
    { type: null },
    { enum: [] },
    { anyOf: [true, { type: 'null' }] },
  ])('an argument of which the schema says nothing: %j', (property) => {
    expect(signatureOf({ x: property, y: { type: 'integer' } }, { required: ['x'] })).toBe('f(x, y?: int)');
  });

  it.each([null, true, 'x', { x: true }])('the arguments where `required` is %j', (required) => {
    expect(signatureOf({ x: { type: 'integer' } }, { required })).toBe('f(x?: int)');
  });

  it.each([null, true, [], undefined])('the tool where its properties are %j', (properties) => {
    expect(signatureOf(properties)).toBe('f()');
  });

  it.each([
    [{ type: 'integer' }, {}, 'f(**others: int)'],
    [{ type: 'integer' }, { x: {} }, 'f(x?, **others: int)'],
    [true, {}, 'f(**others)'],
    [{}, {}, 'f(**others)'],
    [true, { x: {} }, 'f(x?)'],
    [false, {}, 'f()'],
  ])('arguments of any name: %j beside %j', (additionalProperties, properties, signature) => {
    expect(signatureOf(properties, { additionalProperties })).toBe(signature);
  });
});

it.each([
  ['refers to them', { $ref: '#/$defs/Args' }],
  ['is made of parts', { allOf: [{ $ref: '#/$defs/Args' }, { description: 'more' }] }],
])('lists the arguments of a schema that %s', (_, more) => {
  const Args = { type: 'object', properties: { x: { type: 'integer' }, y: {} }, required: ['x'] };
  const inputSchema = { type: 'object', ...more, $defs: { Args } };
  expect(toolListText(readTools([{ name: 'f', inputSchema }]), 'signatures')).toBe('f(x: int, y?)');
  const oneOf = { type: 'object', anyOf: [{ $ref: '#/$defs/Args' }, {}], $defs: { Args } };
  expect(toolListText(readTools([{ name: 'f', inputSchema: oneOf }]), 'signatures')).toBe('f(x?: int, y?)');
});

it('ends with a name where a type would be endless', () => {
  let deep: object = { type: 'string' };
  for (let level = 0; level < 500; level++) deep = { type: 'array', items: deep };
  expect(signatureOf({ x: deep })).toMatch(/^f\(x\?: (list\[){1,20}list\]{1,20}\)$/);
  const wide = Object.fromEntries(
    Array.from({ length: 30 }, (_, level) => [
      `T${level}`,
      {
        type: 'object',
        properties: { a: { $ref: `#/$defs/T${level + 1}` }, b: { $ref: `#/$defs/T${level + 1}` } },
      },
    ]),
  );
  const text = signatureOf({ x: { $ref: '#/$defs/T0' } }, { $defs: { ...wide, T30: { type: 'string' } } });
  expect(text.length).toBeLessThan(700);
});

it('lists each tool that can be called once', () => {
  const listed = [
    ...[
      { name: 'a', description: 'first' },
      { description: 'nameless' },
      { name: '' },
      { name: 7 },
      null,
      'b',
    ],
    ...[{ name: 'a', description: 'second' }, { name: 'a' }],
    { type: 'function', function: { name: 'c', parameters: { properties: { x: { type: 'string' } } } } },
  ];
  expect(readTools(listed).map(({ name, description }) => `${name} ${description}`)).toEqual([
    'a first',
    'c ',
  ]);
  expect(toolListText(readTools(listed), 'signatures')).toBe('a()\nc(x?)');
  expect(leftOutTools(listed)).toEqual(['5 have no name', 'a is listed 3 times']);
  expect(leftOutTools([{ name: 'a' }])).toEqual([]);
  expect(leftOutTools(null)).toEqual([]);
});

it('leaves out the values of enumerations in a short prompt, as the demonstrations of small models teach them', () => {
  const { tools } = appByName('tracker');
  const promptOf = (system_prompt: 'short' | 'skyrl') =>
    systemPrompt({
      ...{ env_variables: {}, tools, sampling: { system_prompt, tools_format: 'signatures' } },
      ...{ format: toolFormat('hermes'), quote: (text) => text },
    });
  expect(promptOf('short')).not.toContain('"open"|"closed"');
  expect(promptOf('skyrl')).toContain('"open"|"closed"');
  const nullable = {
    name: 'f',
    inputSchema: { properties: { x: { type: ['string', 'null'], enum: ['a', null] } } },
  };
  expect(toolListText(readTools([nullable]), 'signatures', { isShort: true })).toBe('f(x?: str|null)');
});
