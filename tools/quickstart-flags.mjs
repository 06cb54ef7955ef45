// Answers `--help` and refuses a mistyped flag of the quickstart, before the set-up takes minutes.
// Usage: node tools/quickstart-flags.mjs [FLAG...] exit code 0: start; 2: not understood; 3: only help was wanted
import { parseArgs } from 'node:util';

const options = {
  seed: { type: 'string' },
  folder: { type: 'string' },
  'keep-open': { type: 'boolean' },
  json: { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
};

const help = `Usage: npm run quickstart -- [--seed N] [--folder FOLDER] [--keep-open] [--json]
Trains a small tool-use policy on this machine in minutes, and writes its report.
  --seed N         seed of the run (1); another seed makes another run
  --folder FOLDER  folder for all data (.longhaul)
  --keep-open      leave the stack and the Temporal UI running afterwards, until Ctrl-C
  --json           last line: one JSON object with the result (npm run -s quickstart -- --json)`;

try {
  const { values } = parseArgs({ options });
  if (values.help) {
    console.log(help);
    process.exit(3);
  }
  // The same check as in the quickstart command itself, which would come only after the set-up.
  if (values.seed !== undefined && !(values.seed.trim() !== '' && isSeed(Number(values.seed))))
    throw new Error(`--seed takes a whole number, 0 or more, not '${values.seed}'.`);
} catch (error) {
  const flags = Object.entries(options).map(
    ([name, { type }]) => `--${name}${type === 'string' ? ' …' : ''}`,
  );
  console.error(`${error.message}\nThe quickstart takes ${flags.join(', ')}.`);
  process.exit(2);
}

function isSeed(number) {
  return Number.isSafeInteger(number) && number >= 0;
}
