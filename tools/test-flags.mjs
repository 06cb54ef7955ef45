// Answers `--help` and refuses a mistyped flag of the tests, before the set-up takes minutes.
// Usage: node tools/test-flags.mjs [ARGUMENT...] exit code 0: start; 2: not understood; 3: only help was wanted
import { parseArgs } from 'node:util';

/** Flags of vitest that are passed on. They are listed here because vitest may not be installed yet. */
const vitestFlags = {
  testNamePattern: { type: 'string', short: 't' },
  project: { type: 'string', multiple: true },
  exclude: { type: 'string', multiple: true },
  reporter: { type: 'string', multiple: true },
  bail: { type: 'string' },
  retry: { type: 'string' },
  shard: { type: 'string' },
  maxWorkers: { type: 'string' },
  testTimeout: { type: 'string' },
  update: { type: 'boolean', short: 'u' },
};
const options = {
  all: { type: 'boolean' },
  nightly: { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
  ...vitestFlags,
};
const names = Object.keys(vitestFlags).map((name) => `--${name}`);

const help = `Usage: npm test -- [--all | --nightly] [PATH...] [VITEST-FLAG...]
Runs the linter, formatting, types, the engine's own tests if native/ changed, and the TypeScript tests.
  --all       also runs the slow tests, and the engine's own ones in any case (npm run test:all)
  --nightly   runs only what --all leaves out: sanitizers, fuzzers and what rarely finds a fault (npm run test:nightly)
  PATH        part of the path of a test file; only matching files run, slow and nightly ones too, without linter and engine tests
Flags that go to vitest: ${names.join(', ')}; for others, use npx vitest run.`;

try {
  if (parseArgs({ options, allowPositionals: true }).values.help) {
    console.log(help);
    process.exit(3);
  }
} catch (error) {
  console.error(`${error.message}\n${help}`);
  process.exit(2);
}
