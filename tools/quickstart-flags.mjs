// Refuses a mistyped flag of the quickstart before set-up takes minutes; the command itself says what a flag's value may be.
// Usage: node tools/quickstart-flags.mjs [FLAG...]   exit code 2: not understood
import { parseArgs } from 'node:util';

const options = {
  seed: { type: 'string' },
  folder: { type: 'string' },
  'keep-open': { type: 'boolean' },
  json: { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
};

try {
  parseArgs({ options });
} catch (error) {
  const flags = Object.entries(options).map(
    ([name, { type }]) => `--${name}${type === 'string' ? ' …' : ''}`,
  );
  console.error(`${error.message}\nThe quickstart takes ${flags.join(', ')}.`);
  process.exit(2);
}
