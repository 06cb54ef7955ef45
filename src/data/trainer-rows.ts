// Rows as the data sets of TRL, SkyRL and verl have them, in our names: a prompt as messages, `data_source`, `reward_model`, `extra_info`, …

/** A row in our names, or why it cannot be one. */
export type ConvertedRow = { row: unknown } | { problem: string };

/** Columns that only the trainer of the row reads, or its grader. */
const foreignColumns = [
  ...['data_source', 'env_class', 'ability', 'agent_name', 'reward_model', 'reward_spec', 'extra_info'],
  ...['question', 'answer', 'solution', 'ground_truth', 'label', 'index', 'id', 'metadata', 'info'],
];
/** Columns that say nothing of the task itself. */
const ofTrainers = ['ability', 'agent_name'];

/**
 * Converts what has one meaning. What a grader reads is sent with the environment's `reset`, under its own name; a column that is not known
 * stays, so that the task schema refuses it.
 */
export function trainerRow(value: unknown): ConvertedRow {
  if (!isMapping(value)) return { row: value };
  const asked = 'prompt' in value ? value.prompt : value.question;
  const read = Array.isArray(asked) ? promptIn(asked) : { text: asked };
  if ('problem' in read) return read;
  const foreign = foreignColumns.filter((name) => name in value);
  if (foreign.length === 0) return { row: 'prompt' in value ? { ...value, prompt: read.text } : value };
  const extra = isMapping(value.extra_info) ? value.extra_info : {};
  const env_key = value.env_key ?? environmentIn(value);
  const task_key = value.task_key ?? extra.task_key ?? keyIn(value, extra, env_key);
  if (typeof env_key !== 'string' || typeof task_key !== 'string')
    return { problem: unnamed(foreign, { task_key, env_key }) };
  const kept = Object.entries(value).filter(([name]) => !foreign.includes(name));
  const used = [
    ...ofTrainers,
    ...('prompt' in value ? [] : ['question']),
    ...(value.env_key === undefined ? ['data_source', 'env_class'] : []),
    ...(value.task_key === undefined ? ['id', 'index'] : []),
    ...(value.env_class === 'fleet_task' ? ['env_class'] : []),
  ];
  const graded = foreign.filter((name) => !used.includes(name) && (value[name] ?? null) !== null);
  const reset = {
    ...Object.fromEntries(graded.map((name) => [name, value[name]])),
    ...(isMapping(value.reset) ? value.reset : {}),
  };
  return {
    row: {
      ...Object.fromEntries(kept),
      ...{ prompt: read.text, env_key, task_key },
      ...(value.split === undefined ? splitIn(extra.split) : {}),
      ...(Object.keys(reset).length === 0 ? {} : { reset }),
    },
  };
}

/** SkyRL Fleet Training names the environment in `data_source`, SkyRL Gym in `env_class`, verl in `data_source`. */
function environmentIn({ env_class, data_source }: Record<string, unknown>): unknown {
  return env_class === undefined || env_class === null || env_class === 'fleet_task'
    ? data_source
    : env_class;
}

function keyIn(row: Record<string, unknown>, extra: Record<string, unknown>, envKey: unknown): unknown {
  const isName = (value: unknown): value is string | number =>
    (typeof value === 'string' && value !== '') || Number.isSafeInteger(value);
  if (isName(row.id)) return String(row.id);
  const index = extra.index ?? row.index;
  if (!isName(index)) return undefined;
  // An index counts within its split.
  return [envKey, extra.split, index].filter(isName).join('/');
}

/** Every split but `train` is for evaluation. */
function splitIn(split: unknown): { split?: 'train' | 'held_out' } {
  if (split === 'train') return { split };
  return typeof split === 'string' && /^(test|val|validation|eval|dev|held_out)$/.test(split)
    ? { split: 'held_out' }
    : {};
}

function unnamed(
  foreign: readonly string[],
  { task_key, env_key }: { task_key: unknown; env_key: unknown },
): string {
  const missing = [
    ...(typeof task_key === 'string' ? [] : ['a task_key of its own']),
    ...(typeof env_key === 'string' ? [] : ['the env_key of the environment that grades it']),
  ];
  return `it has ${foreign.join(', ')}, as rows of other trainers do; give it ${missing.join(', and ')}`;
}

/** The text of a prompt that is one message of the user. */
function promptIn(messages: readonly unknown[]): { text: string } | { problem: string } {
  if (messages.length === 0) return { problem: 'prompt is an empty list; give the text of the request' };
  const texts = messages.map((message) => (isMapping(message) ? textOf(message.content) : null));
  const roles = messages.map((message) => (isMapping(message) ? message.role : undefined));
  const [text] = texts;
  if (roles.length === 1 && roles[0] === 'user' && typeof text === 'string') return { text };
  if (roles.some((role) => typeof role !== 'string'))
    return { problem: 'prompt is a list of something else than messages; give the text of the request' };
  if (texts.includes(null))
    return { problem: 'prompt has a message that is not text; only text can be shown to the model' };
  if (roles.includes('system') || roles.includes('developer'))
    return {
      problem:
        'prompt has a system message, and Longhaul writes that itself; ' +
        'give the text of the request alone, with what the model must know besides the tools',
    };
  return {
    problem: `prompt has ${messages.length} messages; an episode begins with one message of the user`,
  };
}

/** The text of a message, also in parts; null if anything else is in it. */
function textOf(content: unknown): string | null {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return null;
  const parts = content.map((part: unknown) =>
    isMapping(part) && part.type === 'text' && typeof part.text === 'string' ? part.text : null,
  );
  return parts.includes(null) ? null : parts.join('');
}

function isMapping(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
