// Makes this checkout ready to run: dependencies, compiled TypeScript, engine, Temporal server, and for tests an S3 server. Says what each
// step did and how long it took. A step that is current builds nothing.
// Usage: node tools/setup.mjs [--tests] [--development] [--sanitizers] [--only STEP]
import { existsSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { join } from 'node:path';
import { repository } from './steps/cache.mjs';
import { SetupError } from './steps/command.mjs';
import { checkDependencyTools, ensureDependencies } from './steps/dependencies.mjs';
import { checkEngineCompiler, ensureEngine } from './steps/engine.mjs';
import { checkGo, ensureS3Server, ensureTemporal, ensureTemporalServer } from './steps/go-tools.mjs';
import { checkNvcc, ensureNvcc, isCudaWanted } from './steps/nvcc.mjs';
import { checkNode, checkPlatform, requireCmake, requireGenerator } from './steps/prerequisites.mjs';
import { ensureSanitizers } from './steps/sanitizers.mjs';
import { ensureTypescript } from './steps/typescript.mjs';

const usage = `Usage: npm run setup -- [--tests] [--development] [--sanitizers] [--only STEP]
Makes this checkout ready to run; parts that are up to date are not built again.
  --tests        also builds what only tests need: the S3 server, the engine's own tests, the compiled harnesses
  --development  also compiles bench/ and test/chaos/
  --sanitizers   also builds the engine's tests with sanitizers (takes minutes)
  --only STEP    runs only this step; "temporal-server", the server that containers run, is built only this way`;

const options = readOptions();

const steps = [
  ['prerequisites', true, checkPrerequisites],
  ['dependencies', true, ensureDependencies],
  ['typescript', true, () => ensureTypescript('product')],
  ['harnesses', options.tests || options.development, () => ensureTypescript('development')],
  ['nvcc', isCudaWanted(), async () => ((await ensureNvcc()) === null ? 'not wanted' : 'present')],
  ['engine', true, () => ensureEngine({ withTests: options.tests })],
  ['sanitizers', options.sanitizers, ensureSanitizers],
  ['temporal', true, ensureTemporal],
  ['versitygw', options.tests, ensureS3Server],
  // Takes ten minutes for one test, so it runs only when it is asked for by --only.
  ['temporal-server', false, ensureTemporalServer],
];

function readOptions() {
  try {
    const { values } = parseArgs({
      options: {
        tests: { type: 'boolean', default: false },
        development: { type: 'boolean', default: false },
        sanitizers: { type: 'boolean', default: false },
        only: { type: 'string' },
        help: { type: 'boolean', short: 'h', default: false },
      },
    });
    if (!values.help) return values;
    console.log(usage);
    process.exit(0);
  } catch (error) {
    console.error(`${error.message}\n${usage}`);
    process.exit(2);
  }
}

/** Lists everything that is missing at once, before any step that takes minutes. */
async function checkPrerequisites() {
  const checks = [
    checkPlatform,
    checkNode,
    checkDependencyTools,
    checkEngineCompiler,
    requireCmake,
    requireGenerator,
    checkNvcc,
    () => checkGo({ withTests: options.tests }),
  ];
  const problems = [];
  for (const check of checks) {
    try {
      await check();
    } catch (error) {
      if (!(error instanceof SetupError)) throw error;
      problems.push(error.message);
    }
  }
  if (problems.length > 0) throw new SetupError(problems.join('\n\n'));
  return 'present';
}

if (options.only !== undefined && !steps.some(([name]) => name === options.only)) {
  console.error(`There is no step ${options.only}. Steps: ${steps.map(([name]) => name).join(', ')}.`);
  process.exit(2);
}

const started = performance.now();
console.log('Setting up Longhaul');
for (const [name, wanted, ensure] of steps) {
  if (options.only === undefined ? !wanted : options.only !== name) continue;
  const begun = performance.now();
  try {
    const outcome = await ensure();
    console.log(
      `  ${name.padEnd(14)} ${String(outcome).padEnd(24)} ${((performance.now() - begun) / 1000).toFixed(1)} s`,
    );
  } catch (error) {
    console.error(`  ${name.padEnd(14)} failed after ${((performance.now() - begun) / 1000).toFixed(1)} s\n`);
    console.error(error instanceof SetupError ? error.message : error);
    process.exit(1);
  }
}
if (!existsSync(join(repository, 'native')) && options.only === undefined)
  console.error('native/ is missing: this checkout is incomplete.');
console.log(`Ready after ${((performance.now() - started) / 1000).toFixed(1)} s\n`);
