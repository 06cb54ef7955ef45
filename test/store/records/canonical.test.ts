import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  canonicalBytes,
  canonicalText,
  differences,
  recordDigest,
} from '../../../src/store/records/canonical.js';
import { sha256Hex } from '../../../src/base/sha256.js';

function shuffled(value: unknown, random: () => number): unknown {
  if (Array.isArray(value)) return value.map((item) => shuffled(item, random));
  if (typeof value !== 'object' || value === null) return value;
  const members = Object.entries(value).map(([name, member]) => ({ name, member, order: random() }));
  const result = Object.create(null) as Record<string, unknown>;
  for (const { name, member } of members.sort((a, b) => a.order - b.order))
    result[name] = shuffled(member, random);
  return result;
}

const json = fc.jsonValue({ maxDepth: 4 });

describe('canonical JSON', () => {
  it('does not depend on the order of members', () => {
    fc.assert(
      fc.property(json, fc.infiniteStream(fc.double({ min: 0, max: 1, noNaN: true })), (value, order) => {
        expect(canonicalText(shuffled(value, () => order.next().value as number))).toBe(canonicalText(value));
      }),
    );
  });

  it('is JSON of the same value, and stays the same text if it is parsed and written again', () => {
    fc.assert(
      fc.property(json, (value) => {
        const text = canonicalText(value);
        expect(JSON.parse(text)).toEqual(JSON.parse(JSON.stringify(value)));
        expect(canonicalText(JSON.parse(text))).toBe(text);
      }),
    );
  });

  it('gives different values different texts', () => {
    fc.assert(
      fc.property(json, json, (a, b) => {
        const same = canonicalText(a) === canonicalText(b);
        expect(same).toBe(
          differences(JSON.parse(JSON.stringify(a)), JSON.parse(JSON.stringify(b))).length === 0,
        );
      }),
    );
  });

  it('sorts by UTF-16 code units and prints as ECMAScript does (RFC 8785)', () => {
    const value = { '\u20ac': 1, '\r': 2, '\ufb33': 3, '1': 4, '\ud83d\ude00': 5, '\u0080': 6, '\u00f6': 7 };
    expect(canonicalText(value)).toBe(
      '{"\\r":2,"1":4,"\u0080":6,"\u00f6":7,"\u20ac":1,"\ud83d\ude00":5,"\ufb33":3}',
    );
    expect(canonicalText([333333333.33333329, 1e30, 4.5, 2e-3, 1e-27, -0])).toBe(
      '[333333333.3333333,1e+30,4.5,0.002,1e-27,0]',
    );
    expect([...canonicalBytes('é')]).toEqual([0x22, 0xc3, 0xa9, 0x22]);
  });

  it.each([
    [NaN, /\$ is NaN/],
    [{ a: [1, Infinity] }, /\$\.a\[1\] is Infinity/],
    [{ a: undefined }, /\$\.a is undefined/],
    [{ a: { b: new Date() } }, /\$\.a\.b is of class Date/],
    [[1n], /\$\[0\] is bigint/],
    [new Float32Array(1), /class Float32Array/],
  ])('refuses a value that JSON cannot hold, and names its path (%#)', (value, problem) => {
    expect(() => canonicalText(value)).toThrow(problem);
  });
});

it('a record’s digest is the sha256 of its canonical JSON without observed', () => {
  const record = { schema: 'longhaul.name/1', run: 'x', n: 1, observed: { at: 'now' } };
  expect(recordDigest(record)).toBe(sha256Hex('{"n":1,"run":"x","schema":"longhaul.name/1"}'));
});

it('differences name the path and both values', () => {
  expect(differences({ a: { b: [1, 2] }, c: 1 }, { a: { b: [1, 3] } })).toEqual([
    'a.b.1 (stored 2, computed 3)',
    'c (stored 1, computed nothing)',
  ]);
});
