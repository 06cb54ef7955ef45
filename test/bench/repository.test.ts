// Which files make a recorded figure old.
import { expect, test } from 'vitest';
import { measuredFiles } from '../../bench/repository.js';

test('a figure depends on what is measured and on what measures it, not on what was measured nor on tests', () => {
  const files = measuredFiles();
  for (const name of [
    'src/workers/stack.ts',
    'presets/tiny.yaml',
    'bench/disturbed-run.ts',
    'test/chaos/trial.ts',
    'test/support/engine-tap.mjs',
  ])
    expect(files).toContain(name);
  expect(files.filter((name) => name.startsWith('bench/results.json'))).toEqual([]);
  expect(files.filter((name) => name.endsWith('.test.ts'))).toEqual([]);
});
