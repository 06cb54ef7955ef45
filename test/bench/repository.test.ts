// Which files make a recorded figure old.
import { expect, test } from 'vitest';
import { codeHash, measuredFiles } from '../../bench/repository.js';

test('a figure depends on what is measured and on what measures it, not on what was measured nor on tests', () => {
  const files = measuredFiles('campaign');
  for (const name of [
    'src/stack/stack.ts',
    'presets/tiny.yaml',
    'bench/disturbed-run.ts',
    'test/chaos/trial.ts',
    'test/support/preloads/engine-tap.mjs',
  ])
    expect(files).toContain(name);
  expect(files.filter((name) => name.startsWith('bench/results.json'))).toEqual([]);
  expect(files.filter((name) => name.endsWith('.test.ts'))).toEqual([]);
});

test('a figure of the engine alone outlives changes of the runs around it', () => {
  const files = measuredFiles('engine/gemm');
  for (const name of ['native/CMakeLists.txt', 'bench/native-engine.ts', 'bench/engine-peers/peer.py'])
    expect(files).toContain(name);
  expect(files.filter((name) => name.startsWith('src/') && !name.startsWith('src/engine/'))).toEqual([]);
  expect(codeHash('engine/gemm')).not.toBe(codeHash('campaign'));
  expect(measuredFiles('campaign')).toEqual(expect.arrayContaining(files));
});
