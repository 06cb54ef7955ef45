// All checks: linter, formatting, the engine's own tests, the tests of TypeScript. The last line is `N passed, N failed`.
// Arguments go to vitest; with a file or name filter among them only those tests run. With LONGHAUL_TEST_SANITIZERS=1 there are two
// checks more: a part of the engine's tests under sanitizers, and its fuzzers, which go on from where they were.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { repository } from './steps/cache.mjs';
import { engineBuildFolder } from './steps/engine.mjs';
import { findClang, fuzzFolder, sanitizedFolder, sanitizers } from './steps/sanitizers.mjs';

const args = process.argv.slice(2);
const isFiltered = args.some(
  (arg) => !arg.startsWith('-') || arg === '-t' || arg.startsWith('--testNamePattern'),
);
const scratch = mkdtempSync(join(tmpdir(), 'longhaul-test-'));
const counts = { passed: 0, failed: 0 };

function run(title, command, commandArgs, environment = {}) {
  console.log(`\n── ${title}`);
  const started = performance.now();
  const { status, error } = spawnSync(command, commandArgs, {
    cwd: repository,
    stdio: 'inherit',
    env: { ...process.env, LONGHAUL_TEST_RESULTS: join(scratch, 'vitest.json'), ...environment },
  });
  if (error !== undefined) console.error(`${command} did not start: ${error.message}`);
  console.log(`── ${title}: ${((performance.now() - started) / 1000).toFixed(1)} s`);
  return status === 0;
}

/** A check without tests of its own counts as one. */
function count(passed) {
  counts[passed ? 'passed' : 'failed'] += 1;
}

/** `only`: names; absent: all that are built there. */
function engineTests(title, folder, only) {
  const report = join(scratch, `${title.replaceAll(/\W+/g, '-')}.xml`);
  const passed = run(title, 'ctest', [
    ...['--test-dir', folder, '--output-on-failure', '--output-junit', report],
    ...(only ? ['--tests-regex', `^(${only.join('|')})$`] : []),
  ]);
  if (!existsSync(report)) return count(false);
  const attribute = (name) =>
    Number(new RegExp(`<testsuite[^>]*\\s${name}="(\\d+)"`).exec(readFileSync(report, 'utf8'))?.[1] ?? 0);
  const [tests, failures, skipped] = ['tests', 'failures', 'skipped'].map(attribute);
  counts.passed += tests - failures - skipped;
  counts.failed += failures;
  if (skipped > 0) console.log(`${skipped} engine tests were skipped; their output above says why.`);
  const expected = only?.length ?? 1;
  if (tests < expected) console.error(`There are ${tests} tests, and were to be ${expected} at least.`);
  if (tests < expected || (!passed && failures === 0)) count(false);
}

/** Seconds of each fuzzer. */
const fuzzSeconds = 20;

function fuzzers() {
  const clang = findClang();
  if (clang === null)
    return console.log('\n── fuzzers: skipped, because there is no clang++ that links with libFuzzer.');
  const script = join(repository, 'native/fuzz/run.sh');
  const folder = { CXX: clang, LONGHAUL_FUZZ_DIR: fuzzFolder };
  count(run('fuzzers', 'bash', [script, String(fuzzSeconds)], folder));
}

function typescriptTests() {
  const passed = run('typescript', process.execPath, [
    join(repository, 'node_modules/vitest/vitest.mjs'),
    'run',
    ...args,
  ]);
  const results = join(scratch, 'vitest.json');
  if (!existsSync(results)) return count(false);
  const { passed: ran, failed } = JSON.parse(readFileSync(results, 'utf8'));
  counts.passed += ran;
  counts.failed += failed;
  // A failure outside all tests, such as one of the global set-up.
  if (!passed && failed === 0) count(false);
}

if (isFiltered) {
  console.log('A filter is given: the linter and the engine’s own tests are left out.');
} else {
  count(run('linter', process.execPath, [join(repository, 'node_modules/eslint/bin/eslint.js'), '.']));
  count(
    run('formatting', process.execPath, [
      join(repository, 'node_modules/prettier/bin/prettier.cjs'),
      '--check',
      '--log-level',
      'warn',
      '.',
    ]),
  );
  engineTests('engine', engineBuildFolder);
  if (process.env.LONGHAUL_TEST_SANITIZERS === '1') {
    for (const sanitizer of sanitizers)
      engineTests(`engine, -fsanitize=${sanitizer.flags}`, sanitizedFolder(sanitizer), sanitizer.tests);
    fuzzers();
  }
}
typescriptTests();
rmSync(scratch, { recursive: true, force: true });
console.log(`\n${counts.passed} passed, ${counts.failed} failed`);
process.exitCode = counts.failed === 0 && counts.passed > 0 ? 0 : 1;
