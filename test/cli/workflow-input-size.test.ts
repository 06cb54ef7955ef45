import { expect, test } from 'vitest';
import { refuseLargeInput } from '../../src/cli/command-refusals.js';

test('a spec that no Temporal server takes is refused with its size, the limit and its largest key', () => {
  const environments = Array.from({ length: 300 }, (_, index) => ({
    env_key: `e${index}`,
    url: `http://10.0.0.5/${'x'.repeat(8_000)}`,
  }));
  expect(() => refuseLargeInput({ name: 'a', environments }, 'the run spec')).toThrow(
    /^the run spec has one problem:\n {2}it takes 2\.4\d MB as JSON, and the limit is 2\.03 MB; environments alone takes 2\.4\d MB; shorten/,
  );
  expect(() => refuseLargeInput({ name: 'a', environments: environments.slice(0, 240) }, 'x')).not.toThrow();
});

test('bytes are counted, not characters', () => {
  expect(() => refuseLargeInput({ name: '字'.repeat(800_000) }, 'x')).toThrow(/takes 2\.40 MB/);
});
