// `npm run chaos -- --kills N --seed S`: a run whose processes are killed at random moments must end with the same bits
// as one that nobody touched. The last line is the verdict; exit 1 on any difference or violation.
import { parseArgs } from 'node:util';
import { fileURLToPath } from 'node:url';
import { seededRandom } from './random.js';
import { runTrial } from './trial.js';
import { problemsOf } from './verdict.js';
import { readSpecFile } from '../../src/spec/schema.js';
import type { RunSpec } from '../../src/spec/run-spec.js';

const { values } = parseArgs({
  options: {
    kills: { type: 'string', default: '5' },
    seed: { type: 'string', default: '1' },
    preset: { type: 'string' },
    keep: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
  },
});

const kills = wholeNumber('kills', values.kills);
const seed = wholeNumber('seed', values.seed);
const preset = values.preset ?? fileURLToPath(new URL('../../../../presets/tiny.yaml', import.meta.url));
const log = (message: string): void => {
  if (!values.json) console.log(message);
};

const tiny = await readSpecFile(preset);
/** Longer runs for more kills: every kill must meet a run that is still open. */
const spec: RunSpec = {
  ...tiny,
  name: `chaos-${seed}`,
  seed,
  trainer: { ...tiny.trainer, max_training_steps: tiny.trainer.max_training_steps + 4 * kills },
};
const shared = { spec, keep: values.keep, log };
log(`undisturbed run, seed ${seed}`);
const calm = await runTrial({ ...shared, kills: 0, random: seededRandom(seed), longestDelayMs: 0 });
log(`  ${calm.chain.steps - 1} steps in ${calm.seconds.toFixed(1)} s, final state ${calm.chain.finalState}`);
log(`the same run with ${kills} kills`);
const troubled = await runTrial({
  ...shared,
  kills,
  random: seededRandom(seed * 7919 + kills),
  longestDelayMs: Math.max(200, (2000 * calm.seconds) / calm.chain.steps),
});
log(
  `  ${troubled.chain.steps - 1} steps in ${troubled.seconds.toFixed(1)} s, final state ${troubled.chain.finalState}`,
);

const problems = problemsOf(calm, troubled, kills);
for (const problem of problems) log(`  ${problem}`);
if (values.json)
  console.log(
    JSON.stringify({ kills: troubled.kills, calm: calm.chain, troubled: troubled.chain, problems }),
  );
console.log(
  problems.length === 0
    ? `equal: ${troubled.kills.length} kills, state ${calm.chain.finalState}, 0 violations`
    : `NOT equal or not sound: ${problems.length} problems after ${troubled.kills.length} kills`,
);
process.exitCode = problems.length === 0 ? 0 : 1;

function wholeNumber(name: string, text: string): number {
  const value = Number(text);
  if (Number.isInteger(value) && value >= 0) return value;
  console.error(`--${name} takes a whole number ≥ 0, not "${text}"`);
  process.exit(2);
}
