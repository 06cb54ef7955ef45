// Narrows a whole run spec, as `longhaul spec` prints it, to the environments and tasks that a person chose at a launch. Reads the spec on
// standard input and prints the narrowed spec. Refuses choices that the spec cannot be narrowed to, and names all problems at once: a
// launch must not train on other tasks than the chosen ones.
// Usage: longhaul spec SPEC | node narrow-spec.mjs --run-name NAME [--modality tool_use] [--env-keys A,B] [--difficulty 1,2]
//   [--max-tasks N]
import { text } from 'node:stream/consumers';
import { parseArgs } from 'node:util';

const { values: chosen } = parseArgs({
  options: {
    'run-name': { type: 'string', default: '' },
    modality: { type: 'string', default: 'tool_use' },
    'env-keys': { type: 'string', default: '' },
    difficulty: { type: 'string', default: 'all' },
    'max-tasks': { type: 'string', default: '' },
  },
});

const spec = JSON.parse(await text(process.stdin));
const problems = [];

if (/^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$/.test(chosen['run-name'])) spec.name = chosen['run-name'];
else problems.push('--run-name: give 1 to 64 of the characters A-Z a-z 0-9 . _ -, and no dot in front');
if (chosen.modality !== 'tool_use')
  problems.push(
    `--modality: this version trains on tool_use alone, not on ${JSON.stringify(chosen.modality)}`,
  );
narrowEnvironments(names(chosen['env-keys']));
narrowTasks(chosen['max-tasks'].trim());
narrowDifficulty(names(chosen.difficulty));

if (problems.length > 0) {
  for (const problem of problems) console.error(problem);
  process.exitCode = 1;
} else {
  console.log(JSON.stringify(spec, null, 1));
}

function names(list) {
  return list
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '');
}

/** An empty list keeps all environments. */
function narrowEnvironments(wanted) {
  if (wanted.length === 0) return;
  const known = spec.environments.map(({ env_key: key }) => key);
  const missing = wanted.filter((key) => !known.includes(key));
  if (missing.length > 0)
    problems.push(`--env-keys: the spec has no ${missing.join(', ')}; it has ${known.join(', ')}`);
  else spec.data.env_keys = wanted;
  spec.environments = spec.environments.filter(({ env_key: key }) => wanted.includes(key));
}

/** An empty list and `all` keep all tasks. */
function narrowDifficulty(wanted) {
  if (wanted.length === 0 || wanted.join() === 'all') return;
  const wrong = wanted.filter((one) => !/^[1-9][0-9]{0,8}$/.test(one));
  if (wrong.length > 0)
    problems.push(
      `--difficulty: give whole numbers from 1 up, or all, not ${JSON.stringify(wrong.join(','))}`,
    );
  else spec.data.difficulty = wanted.map(Number);
}

/** An empty text keeps all tasks. */
function narrowTasks(most) {
  if (most === '') return;
  if (!/^[1-9][0-9]{0,8}$/.test(most))
    problems.push(`--max-tasks: give a whole number from 1 up, not ${JSON.stringify(most)}`);
  else spec.data.max_tasks = Math.min(spec.data.max_tasks ?? Infinity, Number(most));
}
