import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { tokenBytes, tokenCount, type TokenizerFile } from '../../src/episode/token-bytes.js';
import { loadTokenizer } from '../../src/episode/tokenizer.js';

const small = readFileSync('presets/tokenizers/small/tokenizer.json', 'utf8');

const bytesIn = (json: string) => tokenBytes(JSON.parse(json) as TokenizerFile);
const text = (bytes: readonly Uint8Array[]): string => Buffer.concat(bytes).toString('utf8');

describe('the bytes of tokens', () => {
  test.each([
    'ISS-7Q2K is open',
    '{"name":"find_issue","arguments":{}}',
    'Grüße, 東京 🚀\n\ttab',
    '<done><|im_end|>',
  ])('give the encoded text when joined: %s', (written) => {
    const tokenizer = loadTokenizer(small);
    const bytes = tokenizer.bytes();
    expect(text(tokenizer.encode(written).map((id) => bytes[id]!))).toBe(written);
  });

  test('cover all 256 bytes of a byte-level vocabulary, each once', () => {
    const single = bytesIn(small).filter(({ length }) => length === 1);
    expect(new Set(single.map(([byte]) => byte)).size).toBe(256);
  });

  test('of an added token are its text', () => {
    const tokenizer = loadTokenizer(small);
    const id = tokenizer.addedToken('<|im_end|>')!;
    expect(text([tokenizer.bytes()[id]!])).toBe('<|im_end|>');
  });

  test('with byte fallback are single bytes, and spaces where the decoder writes them', () => {
    const json = JSON.stringify({
      model: {
        type: 'BPE',
        byte_fallback: true,
        vocab: { '<unk>': 0, '▁a': 1, '<0xF0>': 2, '<0x9F>': 3, b: 5 },
      },
      added_tokens: [{ id: 7, content: '</s>' }],
      decoder: {
        type: 'Sequence',
        decoders: [
          { type: 'Replace', pattern: { String: '▁' }, content: ' ' },
          { type: 'ByteFallback' },
          { type: 'Fuse' },
        ],
      },
    });
    const bytes = bytesIn(json);
    expect(tokenCount(json)).toBe(8);
    expect(bytes).toHaveLength(8);
    expect(text([bytes[1]!, bytes[5]!, bytes[7]!])).toBe(' ab</s>');
    expect([...bytes[2]!, ...bytes[3]!]).toEqual([0xf0, 0x9f]);
    expect(bytes[4]).toHaveLength(0);
  });

  test('are refused for a WordPiece tokenizer', () => {
    const json = JSON.stringify({
      model: { type: 'WordPiece', vocab: { a: 0 } },
      decoder: { type: 'WordPiece' },
    });
    expect(() => bytesIn(json)).toThrow(/WordPiece/);
  });
});
