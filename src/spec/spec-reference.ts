// docs/run-spec.md, written from the schema so that neither can say something else.
import { z } from 'zod';
import { runSpecSchema } from './schema.js';

/** What the tables need of a JSON Schema node. */
interface Node {
  type?: string;
  description?: string;
  default?: unknown;
  const?: unknown;
  enum?: unknown[];
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  multipleOf?: number;
  format?: string;
  items?: Node | false;
  prefixItems?: Node[];
  properties?: Record<string, Node>;
  required?: string[];
}

const introduction = `# The run spec

A run is described by one YAML or JSON file. The same JSON is the input of the workflow \`trainingRun\`:

\`\`\`
longhaul spec run.yaml > run.json
temporal workflow start --type trainingRun --task-queue longhaul -w train/NAME --input-file run.json
\`\`\`

\`longhaul spec\` fills in all defaults and makes file paths absolute. Relative paths are relative to the spec file. A key
that is not listed here is refused, and so are values that are impossible together; every problem is reported at once.
Names follow SkyRL where it has one. [\`presets/\`](../presets) has complete specs.

Lengths are in tokens, times in seconds, shares between 0 and 1. A *step* maps one policy state to the next; an *update* is one
optimizer update: a GRPO step makes one, a warm-start step \`mini_batches_per_step\`.
`;

const dataFiles = `## Data files

\`data.tasks\` and \`data.demonstrations\` have one JSON object a line. Every bad line is named when the run starts.

| task | value | default | meaning |
|---|---|---|---|
| \`task_key\` | text | required | its name, unique in the file; the environment knows it |
| \`prompt\` | text | required | what the model is asked; one that does not fit is not played, its outcome is unknown |
| \`env_key\` | text | required | its environment |
| \`env_variables\` | mapping of texts | \`{}\` | facts for the prompt: \`CURRENT_DATE\`, \`LOGGED_IN_USER\`, \`LOGGED_IN_NAME\`, … |
| \`difficulty\` | whole number ≥ 1 | \`1\` | the author’s own measure; nothing depends on it |
| \`template\` | text | its \`env_key\` | kind of task that the curriculum keeps a pass rate for |
| \`split\` | \`"train"\` or \`"held_out"\` | \`"train"\` | to train on, or for evaluation only |

| demonstration | value | default | meaning |
|---|---|---|---|
| \`kind\` | text | required | what \`warm_start[].demonstrations\` names |
| \`messages\` | list | required | \`role\` and \`content\`: \`user\`, then \`assistant\` in every other place, with \`tool\` or \`user\` between |
| \`env_key\` | text | absent | its environment, whose system prompt comes first; absent: no system prompt |
| \`env_variables\` | mapping of texts | \`{}\` | as in a task |
| \`task_key\` | text | absent | the task it solves, for messages |

The loss falls on what the assistant says. The tools in the system prompt are asked of the environment when the run starts, so
its server must be up then, and kept with the data.

A reward may be any number from −1e100 to 1e100. Full reward is 1: pass@1 and pass rates are shares of episodes with a reward of 1
or more.
`;

/** The whole page in Markdown. */
export function specReference(): string {
  const root = z.toJSONSchema(runSpecSchema, { io: 'input' }) as Node;
  const sections = [section('The run', '', root), ...nestedSections(root, '')];
  return `${introduction}\n${sections.join('\n')}\n${dataFiles}`;
}

function nestedSections(node: Node, prefix: string): string[] {
  return Object.entries(node.properties ?? {}).flatMap(([key, child]) => {
    const element = child.items ? child.items : child;
    if (element.properties === undefined) return [];
    const path = `${prefix}${key}${child.items ? '[]' : ''}`;
    return [section(`\`${path}\``, child.description ?? '', element), ...nestedSections(element, `${path}.`)];
  });
}

function section(title: string, meaning: string, node: Node): string {
  const rows = Object.entries(node.properties ?? {}).map(([key, child]) => {
    const needed = node.required?.includes(key) === true;
    return `| \`${key}\` | ${valueText(child)} | ${defaultText(child, needed)} | ${child.description ?? ''} |`;
  });
  const lead = meaning === '' ? '' : `${meaning.charAt(0).toUpperCase()}${meaning.slice(1)}.\n\n`;
  return `## ${title}\n\n${lead}| key | value | default | meaning |\n|---|---|---|---|\n${rows.join('\n')}\n`;
}

function defaultText(node: Node, needed: boolean): string {
  if (needed) return 'required';
  if (node.default === undefined) return 'absent';
  return Object.keys(node.default as object).length === 0 && typeof node.default === 'object'
    ? 'its defaults'
    : `\`${JSON.stringify(node.default)}\``;
}

function valueText(node: Node): string {
  if (node.const !== undefined) return `\`${JSON.stringify(node.const)}\``;
  if (node.enum !== undefined) return node.enum.map((value) => `\`${JSON.stringify(value)}\``).join(' or ');
  if (node.prefixItems !== undefined)
    return `list of ${node.prefixItems.length}: ${valueText(node.prefixItems[0] ?? {})}`;
  if (node.type === 'array')
    return node.items && node.items.properties === undefined ? `list of ${valueText(node.items)}` : 'list';
  if (node.type === 'object') return 'mapping';
  if (node.type === 'boolean') return 'true or false';
  if (node.type === 'string') return node.format === 'uri' ? 'URL' : 'text';
  return `${node.type === 'integer' ? 'whole number' : 'number'}${bounds(node)}`;
}

function bounds(node: Node): string {
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf } = node;
  const parts = [
    minimum === undefined ? '' : `≥ ${minimum}`,
    exclusiveMinimum === undefined ? '' : `> ${exclusiveMinimum}`,
    // The bound of what a JSON number holds exactly says nothing to a reader.
    maximum === undefined || maximum >= Number.MAX_SAFE_INTEGER ? '' : `≤ ${maximum}`,
    exclusiveMaximum === undefined ? '' : `< ${exclusiveMaximum}`,
    multipleOf === undefined ? '' : `a multiple of ${multipleOf}`,
  ].filter((part) => part !== '');
  return parts.length === 0 ? '' : ` ${parts.join(', ')}`;
}
