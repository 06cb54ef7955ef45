import { expect, it } from 'vitest';
import { pickle, Tuple } from '../../../src/environments/fleet/pickle.js';
import { built, goldens, shortened } from './goldens.js';

it.each(goldens.values.map(({ value, pickle: bytes }) => [JSON.stringify(value), value, bytes]))(
  'cloudpickle writes the same bytes: %s',
  (_, value, bytes) => {
    expect(shortened(pickle(built(value)))).toBe(bytes);
  },
);

it('an object that occurs twice is written once', () => {
  const tuple = new Tuple(1);
  const list = [tuple];
  // From Python: t = (1,); l = [t]; cloudpickle.dumps({"a": l, "b": l, "c": t})
  expect(pickle({ a: list, b: list, c: tuple }).toString('hex')).toBe(
    '8005951c000000000000007d94288c0161945d944b018594618c01629468028c0163946803752e',
  );
});

it('a reference to an object after 256 others takes four bytes', () => {
  const last = ['last'];
  const many = [...Array.from({ length: 200 }, (_, n) => [`${n}`]), last, last];
  // Memo number: the outer list, then two for each of 200 lists.
  expect(pickle(many).subarray(-7).toString('hex')).toBe('6a91010000652e');
});
