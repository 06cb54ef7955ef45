import { describe, expect, test } from 'vitest';
import { numberIn, parseJson, writeJson } from '../../src/base/json.js';
import {
  markedEvents,
  markedJson,
  unmarkedJson,
  withMarks,
  withoutMarks,
} from '../../src/environments/fleet/marked-numbers.js';

const texts = [
  '1915883588174806058',
  '1.0',
  '-0',
  '1e3',
  '1E-2',
  '0.10',
  '{"a":[1.0,{"b":2}],"c":"1.0"}',
  '"\\"1.0"',
];

test.each(texts)('%s is written as it was read', (text) => expect(writeJson(parseJson(text))).toBe(text));

test('ten megabytes of text are read', () => {
  const text = `{"t":"${'x\\\\'.repeat(5_000_000)}","v":1.0}`;
  expect(writeJson(parseJson(text))).toBe(text);
});

test('other values are what JSON.parse reads', () => {
  for (const text of ['{"__proto__":1}', '[1,2.5,-3,1e+21]', '{"a":1,"a":2}', 'null', '"x"'])
    expect(parseJson(text)).toEqual(JSON.parse(text));
  expect(numberIn(parseJson('1.0'))).toBe(1);
  expect(numberIn('1')).toBeNull();
});

test.each(['1', '1.0'])('500 lists around %s are read, and written again', (number) => {
  const text = `{"t":"[[[[","l":${'['.repeat(499)}${number}${']'.repeat(499)}}`;
  expect(writeJson(parseJson(text))).toBe(text);
});

test.each([
  '{"__proto__":1.0}',
  '{"__proto__":{"a":1.0},"b":2}',
  '{"x":"__proto__","y":1.0}',
  '{"x":[{"__proto__":"__proto__"}],"y":1.0}',
])('a key or a text that is __proto__ is like any other: %s', (text) => {
  const value = parseJson(text);
  expect(writeJson(value)).toBe(text);
  expect(Object.getPrototypeOf(value)).toBe(Object.prototype);
  expect(({} as { a?: unknown }).a).toBeUndefined();
});

test.each([
  '',
  '{',
  '[1.0,]',
  '{"a":1.0',
  '01',
  '1.',
  `${'['.repeat(20_000)}1.0${']'.repeat(20_000)}`,
  `${'['.repeat(501)}${']'.repeat(501)}`,
  `${'{"a":'.repeat(501)}1.0${'}'.repeat(501)}`,
  '['.repeat(20_000),
])('what is not JSON is a SyntaxError: %.20s', (text) => expect(() => parseJson(text)).toThrow(SyntaxError));

describe('numbers on their way through another reader', () => {
  test.each(texts)('%s come back as they were', (text) => {
    expect(writeJson(withoutMarks(JSON.parse(markedJson(text))))).toBe(text);
    expect(unmarkedJson(JSON.stringify(withMarks(parseJson(text))))).toBe(text);
  });

  test('are marked in the lines of a stream, wherever its chunks end', async () => {
    const stream = `event: message\ndata: {"id":1.0,"t":"data: 1.0 ü"}\n\ndata: {"v":12345678901234567890}\n\n`;
    const bytes = new TextEncoder().encode(stream);
    for (const size of [1, 3, 7, bytes.length]) {
      async function* chunks(): AsyncGenerator<Uint8Array> {
        for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
      }
      const pieces: Uint8Array[] = [];
      for await (const piece of markedEvents(chunks())) pieces.push(piece);
      const seen = Buffer.concat(pieces).toString();
      expect(seen).not.toBe(stream);
      expect(unmarkedJson(seen)).toBe(stream);
    }
  });
});
