// Runs the checks: linter, formatting, types, the engine's own tests if native/ changed, the TypeScript tests. The last line is `N passed, N failed`.
// Usage: node tools/test.mjs [--all | --nightly] [VITEST-ARGUMENTS]
// --all adds the tests in `*.slow.test.ts`. --nightly runs only what the other two leave out: the tests in `*.nightly.test.ts`, a part of the
// engine's tests under sanitizers, the engine's fuzzers, which continue from their last corpus, and mutations of its kernels. With a file, project
// or name filter for vitest, only the matching tests run, of whatever kind.
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { cacheRoot, checkoutKey, contentKey, repository } from './steps/cache.mjs';
import { engineBuildFolder, passedEngineTests } from './steps/engine.mjs';
import { findClang, fuzzFolder, sanitizedFolder, sanitizers } from './steps/sanitizers.mjs';

const all = process.argv.includes('--all');
const nightly = process.argv.includes('--nightly');
const args = process.argv.slice(2).filter((arg) => arg !== '--all' && arg !== '--nightly');
const isFiltered = args.some(
  (arg) => !arg.startsWith('-') || arg === '-t' || /^--(testNamePattern|project)/.test(arg),
);
/** Caches of the linter, the formatter and the type checker. */
const checksFolder = join(cacheRoot, 'checks', checkoutKey);
const scratch = mkdtempSync(join(tmpdir(), 'longhaul-test-'));
const counts = { passed: 0, failed: 0 };

/** Resolves to whether the command passed. `quiet`: its output is printed when it has ended, because another command prints meanwhile. */
function run(title, command, commandArgs, { environment = {}, quiet = false } = {}) {
  if (!quiet) console.log(`\n── ${title}`);
  const started = performance.now();
  const child = spawn(command, commandArgs, {
    cwd: repository,
    stdio: quiet ? ['inherit', 'pipe', 'pipe'] : 'inherit',
    env: { ...process.env, LONGHAUL_TEST_RESULTS: join(scratch, 'vitest.json'), ...environment },
  });
  const written = [];
  for (const output of [child.stdout, child.stderr]) output?.on('data', (bytes) => written.push(bytes));
  return new Promise((resolve) => {
    child.once('error', (error) => console.error(`${command} did not start: ${error.message}`));
    child.once('close', (status) => {
      if (quiet) process.stdout.write(`\n── ${title}\n${Buffer.concat(written).toString()}`);
      console.log(`── ${title}: ${((performance.now() - started) / 1000).toFixed(1)} s`);
      resolve(status === 0);
    });
  });
}

/** `script`: path of a package's command in node_modules. */
async function check(title, script, ...commandArgs) {
  const args = [join(repository, 'node_modules', script), ...commandArgs];
  count(await run(title, process.execPath, args, { quiet: true }));
}

/** Counts a check that has no tests of its own as one test. */
function count(passed) {
  counts[passed ? 'passed' : 'failed'] += 1;
}

/**
 * The linter's cache skips a file whose own text is unchanged. It does not notice changes of this repository's own rules, so the cache's name
 * includes their hash. With --all it also includes all sources: a type that an unchanged file imports may have changed.
 */
async function checkSources() {
  const rules = ['eslint.config.js', 'tools/lint', 'tsconfig.json', 'package-lock.json'];
  if (all) rules.push('src', 'test', 'bench', 'examples');
  const linted = `eslint-${all ? 'all' : 'rules'}-${contentKey(rules.map((path) => join(repository, path)))}`;
  removeOldLinterCaches(linted);
  const cached = (name) => [
    ...['--cache', '--cache-strategy', 'content'],
    ...['--cache-location', join(checksFolder, name)],
  ];
  await check('linter', 'eslint/bin/eslint.js', ...cached(linted), '.');
  await check(
    'formatting',
    'prettier/bin/prettier.cjs',
    ...cached('prettier'),
    '--check',
    '--log-level',
    'warn',
    '.',
  );
  await check(
    'types',
    'typescript/bin/tsc',
    ...['--noEmit', '-p', 'tsconfig.json'],
    ...['--incremental', '--tsBuildInfoFile', join(checksFolder, 'types.tsbuildinfo')],
  );
}

/** A cache of earlier rules is never read again. The newest one of each of the two kinds stays. */
function removeOldLinterCaches(kept) {
  if (!existsSync(checksFolder)) return;
  const other = all ? 'eslint-rules-' : 'eslint-all-';
  for (const name of readdirSync(checksFolder))
    if (name.startsWith('eslint-') && !name.startsWith(other) && name !== kept)
      rmSync(join(checksFolder, name), { force: true });
}

async function nightlyEngineChecks() {
  for (const sanitizer of sanitizers)
    await engineTests(`engine, -fsanitize=${sanitizer.flags}`, sanitizedFolder(sanitizer), sanitizer.tests);
  await fuzzers();
  const script = join(repository, 'native/tools/mutate_kernels.sh');
  count(await run('kernel mutations', 'bash', [script, engineBuildFolder]));
}

/** Their result depends on `native/` and the compilers alone, so they run again only with --all or when one of these changed. */
async function checkEngine() {
  const passed = passedEngineTests();
  if (!all && existsSync(passed))
    return console.log('\n── engine: its tests passed with these sources before; --all runs them again');
  if (await engineTests('engine', engineBuildFolder)) mkdirSync(passed, { recursive: true });
  else rmSync(passed, { recursive: true, force: true });
}

/** `only`: names of the tests to run; if absent, all tests in `folder` run. Resolves to whether all ran and passed. */
async function engineTests(title, folder, only) {
  const report = join(scratch, `${title.replaceAll(/\W+/g, '-')}.xml`);
  const passed = await run(title, 'ctest', [
    ...['--test-dir', folder, '--output-on-failure', '--output-junit', report],
    ...['--parallel', String(availableParallelism())],
    ...(only ? ['--tests-regex', `^(${only.join('|')})$`] : []),
  ]);
  if (!existsSync(report)) {
    count(false);
    return false;
  }
  const attribute = (name) =>
    Number(new RegExp(`<testsuite[^>]*\\s${name}="(\\d+)"`).exec(readFileSync(report, 'utf8'))?.[1] ?? 0);
  const [tests, failures, skipped] = ['tests', 'failures', 'skipped'].map(attribute);
  counts.passed += tests - failures - skipped;
  counts.failed += failures;
  if (skipped > 0) console.log(`${skipped} engine tests were skipped; their output above says why.`);
  const expected = only?.length ?? 1;
  if (tests < expected) console.error(`Only ${tests} tests ran; at least ${expected} were expected.`);
  const ran = tests >= expected && (passed || failures > 0);
  if (!ran) count(false);
  return ran && failures === 0 && skipped === 0;
}

/** Seconds for each fuzzer. */
const fuzzSeconds = 20;

async function fuzzers() {
  const clang = findClang();
  if (clang === null)
    return console.log('\n── fuzzers: skipped, because there is no clang++ that links with libFuzzer.');
  const script = join(repository, 'native/fuzz/run.sh');
  const environment = { CXX: clang, LONGHAUL_FUZZ_DIR: fuzzFolder };
  count(await run('fuzzers', 'bash', [script, String(fuzzSeconds)], { environment }));
}

async function typescriptTests() {
  const projects = nightly ? ['nightly'] : ['pure', 'server'];
  const others = all || nightly ? [] : ['--exclude', 'test/**/*.slow.test.ts'];
  const passed = await run('typescript', process.execPath, [
    join(repository, 'node_modules/vitest/vitest.mjs'),
    'run',
    ...(isFiltered ? [] : [...projects.flatMap((project) => ['--project', project]), ...others]),
    ...args,
  ]);
  const results = join(scratch, 'vitest.json');
  if (!existsSync(results)) return count(false);
  const { passed: ran, failed } = JSON.parse(readFileSync(results, 'utf8'));
  counts.passed += ran;
  counts.failed += failed;
  // The failure was outside all tests, for example in the global set-up.
  if (!passed && failed === 0) count(false);
}

if (isFiltered) {
  console.log('A filter is given: the linter and the engine’s own tests are left out.');
} else if (nightly) {
  await nightlyEngineChecks();
} else {
  // In parallel, because each of them alone does not keep two cores busy.
  await Promise.all([checkSources(), checkEngine()]);
}
await typescriptTests();
rmSync(scratch, { recursive: true, force: true });
console.log(`\n${counts.passed} passed, ${counts.failed} failed`);
process.exitCode = counts.failed === 0 && counts.passed > 0 ? 0 : 1;
