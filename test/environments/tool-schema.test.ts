// Parameters of tools are found wherever a schema has them, and a signature never says that a tool takes nothing if it takes something.
import { expect, test } from 'vitest';
import { readTools } from '../../src/environments/tool-results.js';
import { toolListText } from '../../src/episode/tool-list.js';

const args = { type: 'object', properties: { id: { type: 'integer' } }, required: ['id'] };
const more = { type: 'object', properties: { note: { type: 'string' } } };
const signatureOf = (inputSchema: unknown) =>
  toolListText(readTools([{ name: 't', inputSchema }]), 'signatures');

test.each<[string, unknown, string]>([
  ['a reference', { $ref: '#/$defs/Args', $defs: { Args: args } }, 't(id: int)'],
  [
    'a reference to a reference',
    { $ref: '#/definitions/a', definitions: { a: { $ref: '#/definitions/b/c' }, b: { c: args } } },
    't(id: int)',
  ],
  ['a name with a slash', { $ref: '#/$defs/a~1b', $defs: { 'a/b': args } }, 't(id: int)'],
  ['all of its parts', { allOf: [args, more] }, 't(id: int, note?)'],
  [
    'all of its parts, behind references',
    { allOf: [{ $ref: '#/$defs/Args' }], ...more, $defs: { Args: args } },
    't(id: int, note?)',
  ],
  ['any of its parts', { anyOf: [args, { ...more, required: ['note'] }] }, 't(id?: int, note?)'],
  [
    'one of its parts',
    { oneOf: [args, { ...args, properties: { ...args.properties, ...more.properties } }] },
    't(id: int, note?)',
  ],
  [
    'parts that differ',
    {
      oneOf: [
        { properties: { kind: { const: 'a' } }, required: ['kind'] },
        { properties: { kind: { const: 'b' } }, required: ['kind'] },
      ],
    },
    't(kind: "a"|"b")',
  ],
  ['its own properties', args, 't(id: int)'],
  ['a cycle', { $ref: '#/$defs/a', $defs: { a: { $ref: '#/$defs/a' } } }, 't()'],
  ['a reference that leads nowhere', { $ref: '#/$defs/none' }, 't()'],
  ['no schema', null, 't()'],
])('from %s', (_, schema, signature) => {
  expect(signatureOf(schema)).toBe(signature);
});

test('many references to each other end', () => {
  const refs = Array.from({ length: 30 }, () => ({ $ref: '#/$defs/a' }));
  expect(signatureOf({ $ref: '#/$defs/a', $defs: { a: { allOf: refs, ...args } } })).toBe('t(id: int)');
});

test('a schema with properties of its own stays as it is', () => {
  const schema = { ...args, $defs: { x: more }, additionalProperties: false, allOf: [{ if: {}, then: {} }] };
  expect(readTools([{ name: 't', inputSchema: schema }])[0]?.input_schema).toEqual(schema);
});
