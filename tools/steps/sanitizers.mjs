// Runs some of the engine's own tests under sanitizers, each sanitizer in a build folder that is kept. These tests read memory at computed
// addresses or use several threads. Under sanitizers all tests together would take longer than all other tests.
import { existsSync, mkdirSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { contentKey, platformKey, withLock } from './cache.mjs';
import { findOnPath, outputOf, runLong } from './command.mjs';
import { buildContinues, engineBuildFolder, forgetBuilds, native } from './engine.mjs';
import { requireCmake, requireCompiler, requireGenerator } from './prerequisites.mjs';

/** `tests`: names in ctest. The program of a test has `_` in place of `/`. */
export const sanitizers = [
  {
    name: 'memory',
    flags: 'address,undefined',
    tests: [
      'cpu/attention_test',
      'cpu/kernels_test',
      'cuda/attention_test',
      'cuda/digest_test',
      'cuda/emulator_test',
      'cuda/norms_test',
      'cuda/optimizer_test',
      'cuda/products_test',
      'cuda/rows_test',
      'model/parity_test',
      'model/sample_test',
      'serve/block_trie_test',
      'serve/fuzz_test',
      'serve/generate_test',
      'state/batch_file_test',
      'state/hf_folder_test',
      'state/safetensors_test',
      'state/state_file_test',
      'wire/json_test',
    ],
  },
  {
    name: 'races',
    flags: 'thread',
    tests: ['base/thread_pool_test', 'serve/generate_test', 'serve/traffic_test', 'wire/channel_test'],
  },
];

export const sanitizedFolder = ({ name }) => `${engineBuildFolder}-${name}`;
export const fuzzFolder = `${engineBuildFolder}-fuzz`;

/**
 * Path of a clang that can link libFuzzer, which only clang has; null if there is none. libFuzzer may be missing: it may be in a package of
 * its own.
 */
export function findClang() {
  for (const name of [
    'clang++',
    'clang++-19',
    'clang++-18',
    'clang++-17',
    'clang++-16',
    'clang++-15',
    'clang++-14',
  ]) {
    const path = findOnPath(name);
    if (path !== null && linksFuzzers(path)) return path;
  }
  return null;
}

function linksFuzzers(clang) {
  const program = 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }';
  const args = ['-x', 'c++', '-', '-fsanitize=fuzzer,address,undefined', '-o', '/dev/null'];
  return outputOf(clang, args, { input: program }) !== null;
}

/** @returns {Promise<string>} what was done, for the set-up's table of steps */
export async function ensureSanitizers() {
  const done = [];
  for (const sanitizer of sanitizers) if (await ensureSanitizer(sanitizer)) done.push(sanitizer.name);
  return done.length === 0 ? 'current' : `built: ${done.join(', ')}`;
}

async function ensureSanitizer(sanitizer) {
  const { name, flags, tests } = sanitizer;
  const compiler = requireCompiler();
  const folder = sanitizedFolder(sanitizer);
  return withLock(`engine-${name}`, async () => {
    const version = (outputOf(compiler, ['--version']) ?? '').split('\n')[0] ?? '';
    const built = join(folder, `tests-${contentKey([native], [version, platformKey, ...tests])}`);
    if (existsSync(built)) return false;
    const generator = existsSync(join(folder, 'CMakeCache.txt')) ? [] : ['-G', requireGenerator()];
    await runLong(
      requireCmake(),
      [
        ...['-S', native, '-B', folder, ...generator, '-DCMAKE_BUILD_TYPE=Release'],
        ...[`-DCMAKE_CXX_COMPILER=${compiler}`, `-DLONGHAUL_SANITIZE=${flags}`],
      ],
      { label: `engine configuration for ${name}` },
    );
    forgetBuilds(folder);
    const targets = tests.map((test) => test.replace('/', '_'));
    const jobs = String(Math.max(1, availableParallelism()));
    await runLong(requireCmake(), ['--build', folder, '--parallel', jobs, '--target', ...targets], {
      label: `engine build for ${name}`,
      again: buildContinues,
    });
    mkdirSync(built, { recursive: true });
    return true;
  });
}
