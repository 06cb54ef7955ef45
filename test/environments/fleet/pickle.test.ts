import { expect, it } from 'vitest';
import { pickle } from '../../../src/environments/fleet/pickle.js';
import { built, goldens, shortened } from './goldens.js';

it.each(goldens.values.map(({ value, pickle: bytes }) => [JSON.stringify(value), value, bytes]))(
  'cloudpickle writes the same bytes: %s',
  (_, value, bytes) => {
    expect(shortened(pickle(built(value)))).toBe(bytes);
  },
);
