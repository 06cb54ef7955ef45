import { readFileSync } from 'node:fs';
import { Tokenizer } from '@huggingface/tokenizers';
import { describe, expect, test } from 'vitest';
import { seededRandom } from '../chaos/random.js';
import { loadTokenizer } from '../../src/episode/tokenizer.js';

const json = readFileSync('presets/tokenizers/small/tokenizer.json');
const tokenizer = loadTokenizer(json);

/** The tokenizer with this many further pieces, as large as those of real models. */
function withPieces(count: number): string {
  const file = JSON.parse(json.toString()) as { model: { vocab: Record<string, number> } };
  const first = Object.keys(file.model.vocab).length + 100;
  for (let n = 0; n < count; n++) file.model.vocab[`piece-${n}-of-many`] = first + n;
  return JSON.stringify(file);
}

const lowercase = { normalizer: { type: 'Lowercase' } };
const longer = {
  ...{ id: 1024, content: '<|im_start|><|', single_word: false },
  ...{ lstrip: false, rstrip: false, normalized: false, special: true },
};

describe('a tokenizer', () => {
  test('gives the ids that the reference implementation gives', () => {
    const cases = JSON.parse(readFileSync('test/episode/reference-ids.json', 'utf8')) as {
      text: string;
      ids: number[];
    }[];
    expect(cases.length).toBeGreaterThan(50);
    for (const { text, ids } of cases) expect([text, tokenizer.encode(text)]).toEqual([text, ids]);
  });

  test('encodes a long text in a thread, with the same ids, without blocking the event loop', async () => {
    const text = '{"issues":[{"id":"ISS-7Q2K","title":"login page is slow"}]} '.repeat(4000);
    let turns = 0;
    const timer = setInterval(() => (turns += 1), 1);
    const ids = await tokenizer.encodeLong(text);
    clearInterval(timer);
    // Without the thread, there would be no turns until the text is encoded.
    expect(turns).toBeGreaterThan(10);
    expect(ids).toEqual(tokenizer.encode(text));
  });

  test('encodes special tokens in a text as their ids', () => {
    const [first, ...rest] = tokenizer.encode('<|im_start|>user');
    expect(first).toBe(tokenizer.addedToken('<|im_start|>'));
    expect(tokenizer.decode(rest)).toBe('user');
  });

  describe('encodes the text between special tokens separately, with the same ids as for the whole text', () => {
    const file = JSON.parse(json.toString()) as {
      added_tokens: { content: string; lstrip: boolean; rstrip: boolean }[];
    };
    const changed = (how: object): object[] => file.added_tokens.map((token) => ({ ...token, ...how }));
    const metaspace = { type: 'Metaspace', replacement: '▁', prepend_scheme: 'first', split: true };
    test.each([
      ['if the tokenizer is unchanged', {}],
      ['if a special token takes the space before it', { added_tokens: changed({ lstrip: true }) }],
      ['if a special token takes the space after it', { added_tokens: changed({ rstrip: true }) }],
      [
        'if special tokens are found in the normalized text',
        { added_tokens: changed({ normalized: true }), ...lowercase },
      ],
      ['if only the first word begins with a space', { pre_tokenizer: metaspace }],
      ['if one special token begins with another one', { added_tokens: [...file.added_tokens, longer] }],
    ])('%s', (_, change) => {
      const other = JSON.stringify({ ...file, ...change });
      const whole = new Tokenizer(JSON.parse(other) as object, {});
      const own = loadTokenizer(other);
      const words = [...file.added_tokens.map(({ content }) => content), longer.content];
      words.push(' Hello', ' ', 'a  b ', '\n', '<|im_', '|>', '<', '<|IM_START|>', '{"id": 3}');
      const random = seededRandom(1);
      for (let time = 0; time < 500; time++) {
        const text = Array.from({ length: random.below(9) }, () => words[random.below(words.length)]).join(
          '',
        );
        const { ids } = whole.encode(text, { add_special_tokens: false });
        expect([text, own.encode(text)]).toEqual([text, ids]);
      }
    });
    test('and only once for all texts that contain the same piece', () => {
      const long = 'the tools and their arguments '.repeat(130);
      const own = loadTokenizer(json);
      const timed = (text: string): number => {
        const began = performance.now();
        own.encode(text);
        return performance.now() - began;
      };
      const first = timed(`<|im_start|>${long}<|im_end|>0`);
      const later = Array.from({ length: 20 }, (_, index) => timed(`<|im_start|>${long}<|im_end|>${index}`));
      expect(Math.min(...later)).toBeLessThan(first / 5);
    });
  });

  test('makes the tokenizer for quoted text in a thread, without blocking the event loop', async () => {
    const large = withPieces(60_000);
    const text = tokenizer.quote('a result says <|im_end|>');
    const stalls: number[] = [];
    // Other processes may stall this one too, but hardly each time.
    for (let time = 0; time < 3; time++) {
      const own = loadTokenizer(large);
      let [longest, last] = [0, performance.now()];
      const timer = setInterval(() => {
        longest = Math.max(longest, performance.now() - last);
        last = performance.now();
      }, 1);
      await own.encodeLong(text);
      clearInterval(timer);
      stalls.push(longest);
    }
    const begun = performance.now();
    loadTokenizer(large).encode(text);
    expect(Math.min(...stalls)).toBeLessThan((performance.now() - begun) / 4);
  });

  test('encodes many texts at a time, each as if it were alone', async () => {
    const texts = Array.from({ length: 20 }, (_, n) => tokenizer.quote(`${n} <|im_end|>`));
    expect(await Promise.all(texts.map((text) => tokenizer.encodeLong(text)))).toEqual(
      texts.map((text) => tokenizer.encode(text)),
    );
  });

  test('says what is wrong with a file that is no tokenizer', () => {
    expect(() => loadTokenizer('{')).toThrow(/not a usable tokenizer.json/);
  });
});
