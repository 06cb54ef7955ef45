// Generates docs/run-spec.md from the schema, so that the two agree.
import { z } from 'zod';
import { type Node, valueText } from './schema-text.js';
import { selection } from '../../../src/spec/data-schema.js';
import { datasetSpecSchema } from '../../../src/spec/dataset-spec.js';
import { runSpecSchema } from '../../../src/spec/schema.js';

const introduction = `# The run spec

A run is one YAML or JSON file; [\`presets/\`](../presets) has complete examples. \`longhaul spec FILE\` checks it, fills in all defaults, makes paths absolute (relative
ones start at the file's folder) and prints the input of the workflow \`trainingRun\`. Unknown keys and impossible combinations are
refused; one error lists all problems. Keys have SkyRL's names, if it has them. \`longhaul train FILE KEY=VALUE …\` overrides keys by their path
(\`trainer.lr=1e-6\`); the inputs of SkyRL Fleet Training's launch workflow (\`env_key\`, \`difficulty\`, \`max_tasks\`, \`max_steps\`, …) set the keys that mean the same.

Lengths are in tokens, times in seconds, shares from 0 to 1. A GRPO step is one optimizer update; a warm-start step has \`mini_batches_per_step\`. Each key
has its values and its default. A key without a default may be absent unless it is required.
`;

const dataFiles = `## Data files

\`data.tasks\` and \`data.demonstrations\` have one JSON object a line ([examples](guide/own-tasks.md)). A task:

- \`task_key\` (text; required): unique in the file and known to its environment
- \`prompt\` (text; required): the request to the model; \`""\`: what the environment shows at its reset
- \`env_key\` (text; required): its environment
- \`env_variables\` (texts by name; \`{}\`): facts for the prompt: \`CURRENT_DATE\`, \`LOGGED_IN_USER\`, \`LOGGED_IN_NAME\`, …
- \`difficulty\` (int ≥1; \`1\`): as judged by the author; sweeps can select by it
- \`template\` (text; its \`env_key\`): what the curriculum keeps a pass rate of
- \`split\` (\`"train"\`, \`"held_out"\`; \`"train"\`): \`held_out\`: only for evaluation
- \`modality\` (\`"tool_use"\`, \`"computer_use"\`), \`env_version\`, \`data_key\`, \`data_version\` (texts), \`verifier_code\` (text): as in the files of SkyRL Fleet Training
- \`reset\` (object): sent with the environment’s \`reset\`, for servers that choose a task by keys of their own

A demonstration:

- \`kind\` (text; required): selected by \`warm_start[].demonstrations\`
- \`messages\` (list; required): with \`role\` (first \`user\`, every second \`assistant\`, others \`tool\` or \`user\`) and \`content\`
- \`env_key\` (text): environment whose system prompt comes first; absent: none
- \`env_variables\` (texts by name; \`{}\`): as in a task
- \`task_key\` (text): the task that it solves; a prepared dataset leaves it out if that is held out

A solution, for \`longhaul data prepare\`: \`task_key\` (text; required), \`calls\` (list of \`{name, arguments}\`; \`[]\`), \`final_answer\` (text; \`""\`).
`;

const datasetFile = `## The dataset file

[\`longhaul data prepare FILE\`](guide/own-tasks.md#prepared-datasets) reads it. Its keys to select and split, and \`environments[]\`, are those of a run; the others:
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
  return `${introduction}\n## The run\n\n${top}\n${sections.join('\n')}\n${dataFiles}\n${datasetSection()}`;
}

/** The keys that a run's spec does not have as well. */
function datasetSection(): string {
  const root = z.toJSONSchema(datasetSpecSchema, { io: 'input' }) as Node;
  const shared = [...Object.keys(selection), 'environments', 'demonstrations'];
  const own = Object.entries(root.properties ?? {}).filter(([key]) => !shared.includes(key));
  const keys = own.flatMap(([key, child]) => [
    row(key, child, isNeeded(root, key)),
    ...rows(elementOf(child), `${key}.`),
  ]);
  return `${datasetFile}\n${keys.join('')}`;
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
