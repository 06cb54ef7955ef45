// Generates docs/run-spec.md from the schema, so that the two agree.
import { z } from 'zod';
import { type Node, valueText } from './schema-tables.js';
import { runSpecSchema } from './schema.js';

const introduction = `# The run spec

A run is one YAML or JSON file; [\`presets/\`](../presets) has complete ones. \`longhaul spec FILE\` checks it, fills in all defaults, makes paths absolute (relative
ones start at the file's folder) and prints the JSON that is the input of the workflow \`trainingRun\`. Unknown keys and impossible combinations are
refused, all problems at once. Names follow SkyRL where it has one.

Lengths are in tokens, times in seconds, shares from 0 to 1. A GRPO step is one optimizer update, a warm-start step \`mini_batches_per_step\`. Each key
stands with its values and its default; without one it may be absent.
`;

const dataFiles = `## Data files

\`data.tasks\` and \`data.demonstrations\` have one JSON object a line ([examples](guide/own-tasks.md)). A task:

- \`task_key\` (text; required): its name, unique in the file; the environment knows it
- \`prompt\` (text; required): what the model is asked
- \`env_key\` (text; required): its environment
- \`env_variables\` (texts by name; \`{}\`): facts for the prompt: \`CURRENT_DATE\`, \`LOGGED_IN_USER\`, \`LOGGED_IN_NAME\`, …
- \`difficulty\` (int ≥1; \`1\`): the author’s measure; sweeps may choose by it
- \`template\` (text; its \`env_key\`): kind of task that the curriculum keeps a pass rate for
- \`split\` (\`"train"\`, \`"held_out"\`; \`"train"\`): for training, or evaluation only

A demonstration:

- \`kind\` (text; required): what \`warm_start[].demonstrations\` names
- \`messages\` (list; required): \`role\`, \`content\`: \`user\`, then \`assistant\` in every other place, \`tool\` or \`user\` between
- \`env_key\` (text): its environment, whose system prompt comes first; absent: none
- \`env_variables\` (texts by name; \`{}\`): as in a task
- \`task_key\` (text): the task it solves, for messages
`;

/** The whole page in Markdown. */
export function specReference(): string {
  const root = z.toJSONSchema(runSpecSchema, { io: 'input' }) as Node;
  const sections = Object.entries(root.properties ?? {}).flatMap(([key, child]) => {
    const element = elementOf(child);
    return element.properties === undefined ? [] : [section(`\`${key}${child.items ? '[]' : ''}\``, element)];
  });
  const top = Object.entries(root.properties ?? {})
    .map(([key, child]) => row(key, child, isNeeded(root, key)))
    .join('');
  return `${introduction}\n## The run\n\n${top}\n${sections.join('\n')}\n${dataFiles}`;
}

const elementOf = (node: Node): Node => (node.items ? node.items : node);
const isNeeded = (node: Node, key: string): boolean => node.required?.includes(key) === true;

function section(title: string, node: Node): string {
  return `## ${title}\n\n${rows(node, '').join('')}`;
}

/** Rows of a mapping's keys. The keys of a nested mapping follow the mapping's own row, named by their path within the section. */
function rows(node: Node, prefix: string): string[] {
  return Object.entries(node.properties ?? {}).flatMap(([key, child]) => [
    row(`${prefix}${key}`, child, isNeeded(node, key)),
    ...rows(elementOf(child), `${prefix}${key}.`),
  ]);
}

function row(path: string, node: Node, needed: boolean): string {
  const value = [valueText(node), defaultText(node, needed)].filter((part) => part !== '').join('; ');
  return `- \`${path}\` (${value}): ${node.description ?? ''}\n`;
}

function defaultText(node: Node, needed: boolean): string {
  if (needed) return 'required';
  const isMapping = typeof node.default === 'object' && !Array.isArray(node.default);
  return node.default === undefined || isMapping ? '' : `\`${JSON.stringify(node.default)}\``;
}
