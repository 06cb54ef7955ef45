import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { readToolAnswer } from '../../src/environments/tool-results.js';
import { resultObservation } from '../../src/episode/observation.js';

const bytes = Buffer.from('not really a picture');
const sha256 = createHash('sha256').update(bytes).digest('hex');
const image = { type: 'image', data: bytes.toString('base64') };

function read(content: unknown[]) {
  const answer = readToolAnswer({ result: { content, is_error: false } });
  if (answer.kind === 'failed') throw new Error(answer.message);
  return answer.result;
}

it.each([
  [{ mimeType: 'image/png' }, 'image/png', '[image image/png, 20 bytes]'],
  [{ mime_type: 'image/jpeg' }, 'image/jpeg', '[image image/jpeg, 20 bytes]'],
  [{}, '', '[image, 20 bytes]'],
])('an image becomes a block without its bytes, which the model reads as a line: %j', (says, mime, line) => {
  const result = read([
    { type: 'text', text: 'Here:' },
    { ...image, ...says },
  ]);
  expect(result.content).toEqual([
    { type: 'text', text: 'Here:' },
    { type: 'image', mime, sha256, size: bytes.length },
  ]);
  expect(resultObservation(result, 1000)).toBe(`Tool result:\nHere:\n${line}`);
});

it('the model reads text blocks as lines, and what has no form as JSON', () => {
  const strange = { type: 'hologram', uri: 'file:///x' };
  const result = read([{ type: 'text', text: 'a' }, { type: 'text', text: 'b' }, strange, { type: 'image' }]);
  expect(resultObservation(result, 1000)).toBe(
    `Tool result:\na\nb\n${JSON.stringify(strange)}\n{"type":"image"}`,
  );
  expect(resultObservation(result, 3)).toMatch(
    /^Tool result:\na\nb\n\[TRUNCATED: 3 of \d+ characters shown\]$/,
  );
});

const data = bytes.toString('base64');

it.each<[string, unknown, string]>([
  ['a link', { type: 'resource_link', uri: 'file:///x' }, '[link: file:///x]'],
  [
    'a link with all its facts',
    {
      ...{ type: 'resource_link', uri: 'file:///r.pdf', name: 'r.pdf', description: 'of\n2026' },
      ...{ mimeType: 'application/pdf', size: 1200 },
    },
    '[link: r.pdf, file:///r.pdf, application/pdf, 1200 bytes: of 2026]',
  ],
  ['audio', { type: 'audio', data, mimeType: 'audio/wav' }, '[audio audio/wav, 20 bytes]'],
  [
    'audio of an older library',
    { type: 'audio', data, mime_type: 'audio/mp3' },
    '[audio audio/mp3, 20 bytes]',
  ],
  ['embedded text', { type: 'resource', resource: { uri: 'file:///a.txt', text: 'a\nb' } }, 'a\nb'],
  ['embedded text that is empty', { type: 'resource', resource: { uri: 'file:///a.txt', text: '' } }, ''],
  [
    'an embedded blob',
    { type: 'resource', resource: { uri: 'file:///a.zip', mimeType: 'application/zip', blob: data } },
    '[file file:///a.zip application/zip, 20 bytes]',
  ],
  ['a blob without a name', { type: 'resource', resource: { blob: data } }, '[file, 20 bytes]'],
  ['a resource without content', { type: 'resource', resource: { uri: 'file:///a' } }, '[link: file:///a]'],
  ['text alone', 'hello', 'hello'],
])('the model reads %s', (_, block, text) => {
  expect(resultObservation(read([block]), 1000)).toBe(`Tool result:\n${text}`);
});

const observed = (observation: Record<string, unknown>): string => {
  const answer = readToolAnswer(observation);
  return answer.kind === 'failed'
    ? `failed: ${answer.reason}: ${answer.message}`
    : resultObservation(answer.result, 1000);
};

it.each<[string, Record<string, unknown>, string]>([
  ['an empty result', { result: { content: [], isError: true } }, 'Error: the tool failed'],
  [
    'an empty text',
    { result: { content: [{ type: 'text', text: ' ' }], is_error: true } },
    'Error: the tool failed',
  ],
  [
    'no content',
    { result: { content: [], isError: true, structuredContent: { code: 7 } } },
    'Error: {"code":7}',
  ],
  ['an image', { result: { content: [image], isError: true } }, 'Error: [image, 20 bytes]'],
  [
    'an object without words',
    { result: null, error: { error_type: 'execution_error' } },
    'Error: the tool failed',
  ],
  ['an empty object', { result: null, error: {} }, 'Error: the tool failed'],
  [
    'a list of problems',
    {
      error: [
        { loc: ['body', 'total'], msg: 'must be an integer', url: 'https://x' },
        { loc: [], msg: 'late' },
      ],
    },
    'Error: total: must be an integer\nlate',
  ],
  [
    'an object with a list',
    {
      error: { error_type: 'invalid_args', message: 'Invalid', errors: [{ loc: ['a', 0], msg: 'missing' }] },
    },
    'Error: Invalid\na.0: missing',
  ],
  ['an object with a list as its message', { error: { message: ['one', 'two'] } }, 'Error: one\ntwo'],
  ['an object with a list of texts', { error: { details: ['one', 'two'] } }, 'Error: one\ntwo'],
  ['an object of another form', { error: { code: 404 } }, 'Error: {"code":404}'],
  [
    'the data of JSON-RPC',
    { error: { code: -32602, message: 'Invalid', data: [{ msg: 'x' }] } },
    'Error: Invalid\nx',
  ],
  ['a flag beside the words', { error: true, result: 'no such row' }, 'Error: no such row'],
  ['a flag alone', { error: true, result: null }, 'Error: the tool failed'],
  [
    'a late tool',
    { error: { error_type: 'timeout', message: ['after', '30 s'] } },
    'failed: timeout: after\n30 s',
  ],
])('an error is read from %s', (_, observation, text) => {
  expect(observed(observation)).toBe(text);
});

it.each<[Record<string, unknown>]>([
  [{ result: 'fine', error: null }],
  [{ result: 'fine', error: '' }],
  [{ result: 'fine', error: [] }],
  [{ result: 'fine', error: false }],
])('there is no error in %j', (observation) => {
  expect(observed(observation)).toBe('Tool result:\nfine');
});

describe('structured content', () => {
  const shown = (content: readonly string[], structuredContent: unknown): string => {
    const blocks = content.map((text) => ({ type: 'text', text }));
    return observed({ result: { content: blocks, structuredContent } });
  };
  it.each<[string, string[], unknown, string]>([
    ['beside other words', ['Here are the results.'], { id: 7 }, 'Here are the results.\n{"id":7}'],
    ['beside an empty text', [''], { id: 7 }, '{"id":7}'],
  ])('is shown %s', (_, content, structured, text) => {
    expect(shown(content, structured)).toBe(`Tool result:\n${text}`);
  });

  it.each<[string, string[], unknown]>([
    ['in the same form', ['{"id":7,"v":[1]}'], { v: [1], id: 7 }],
    ['in lines', ['{\n  "id": 7.0\n}'], { id: 7 }],
    ['beside words', ['Here:', '{"id":7}'], { id: 7 }],
    ['as a text that FastMCP wraps', ['sunny'], { result: 'sunny' }],
    ['as a number that FastMCP wraps', ['3'], { result: 3 }],
    ['as a list that FastMCP wraps', ['{"id":1}', '{"id":2}'], { result: [{ id: 1 }, { id: 2 }] }],
    ['as a list of texts', ['a', 'b'], { result: ['a', 'b'] }],
    ['empty', ['done'], {}],
  ])('is not shown twice: %s', (_, content, structured) => {
    expect(shown(content, structured)).toBe(`Tool result:\n${content.join('\n')}`);
  });
});
