import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { loadTokenizer } from '../../src/episode/tokenizer.js';

const json = readFileSync('presets/tokenizers/small/tokenizer.json');
const tokenizer = loadTokenizer(json);

describe('a tokenizer', () => {
  test('gives the ids that the reference implementation gives', () => {
    const cases = JSON.parse(readFileSync('test/episode/reference-ids.json', 'utf8')) as {
      text: string;
      ids: number[];
    }[];
    expect(cases.length).toBeGreaterThan(50);
    for (const { text, ids } of cases) expect([text, tokenizer.encode(text)]).toEqual([text, ids]);
  });

  test('encodes a long text in a thread, with the same ids, while the event loop goes on', async () => {
    const text = '{"issues":[{"id":"ISS-7Q2K","title":"login page is slow"}]} '.repeat(4000);
    let longestMs = 0;
    let last = performance.now();
    const timer = setInterval(() => {
      longestMs = Math.max(longestMs, performance.now() - last);
      last = performance.now();
    }, 1);
    const ids = await tokenizer.encodeLong(text);
    clearInterval(timer);
    const began = performance.now();
    expect(ids).toEqual(tokenizer.encode(text));
    // By as much the loop would have stood still.
    expect(longestMs).toBeLessThan((performance.now() - began) / 2);
  });

  test('takes special tokens in a text for what they are', () => {
    const [first, ...rest] = tokenizer.encode('<|im_start|>user');
    expect(first).toBe(tokenizer.addedToken('<|im_start|>'));
    expect(tokenizer.decode(rest)).toBe('user');
  });

  test('says what is wrong with a file that is none', () => {
    expect(() => loadTokenizer('{')).toThrow(/not a usable tokenizer.json/);
  });
});
