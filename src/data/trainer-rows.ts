// Rows as the data sets of TRL, SkyRL and verl have them, in our names: a prompt as messages, `data_source`, `reward_model`, `extra_info`, …
import { isObject, numberIn, parseJson } from '../base/json.js';

/** A row in our names, or why it cannot be one. */
type ConvertedRow = { row: unknown } | { problem: string };

/** Columns that only the trainer of the row reads, or its grader. */
const foreignColumns = [
  ...['data_source', 'env_class', 'ability', 'agent_name', 'reward_model', 'reward_spec', 'extra_info'],
  ...['question', 'answer', 'solution', 'ground_truth', 'label', 'index', 'id', 'metadata', 'info'],
];
/** Columns of rows that show a model what to answer: those of Alpaca, ShareGPT and conversations. */
const ofDemonstrations = ['instruction', 'conversations', 'messages', 'chosen'];
/** Columns that say nothing of the task itself. */
const ofTrainers = ['ability', 'agent_name'];

/**
 * Converts the columns that have only one meaning. Columns that a grader reads are sent with the environment's `reset` under their own names.
 * Unknown columns stay, so that the task schema refuses them.
 */
export function trainerRow(value: unknown): ConvertedRow {
  if (!isObject(value)) return { row: value };
  const shown = ofDemonstrations.find((name) => name in value);
  if (shown !== undefined && !('prompt' in value) && !('question' in value))
    return {
      problem:
        `it has ${shown}, as rows for supervised training do; a task has prompt, env_key and task_key, and is graded by its environment ` +
        '(demonstrations belong into data.demonstrations)',
    };
  const asked = messagesIn('prompt' in value ? value.prompt : value.question);
  const read = Array.isArray(asked) ? promptIn(asked) : { text: asked };
  if ('problem' in read) return read;
  const foreign = foreignColumns.filter((name) => name in value);
  if (foreign.length === 0) return { row: 'prompt' in value ? { ...value, prompt: read.text } : value };
  const extra = isObject(value.extra_info) ? value.extra_info : {};
  const env_key = value.env_key ?? environmentIn(value);
  const task_key = value.task_key ?? nameIn(extra.task_key) ?? keyIn(value, extra, env_key);
  const missing = [
    ...(isGiven(task_key) ? [] : ['a task_key of its own']),
    ...(isGiven(env_key) ? [] : ['the env_key of the environment that grades it']),
  ];
  if (missing.length > 0)
    return {
      problem: `it has ${foreign.join(', ')}, as rows of other trainers do; give it ${missing.join(', and ')}`,
    };
  const kept = Object.entries(value).filter(([name]) => !foreign.includes(name));
  const used = [
    ...ofTrainers,
    ...('prompt' in value ? [] : ['question']),
    ...(value.env_key === undefined ? ['data_source', 'env_class'] : []),
    ...(value.task_key === undefined ? ['id', 'index'] : []),
    ...(value.env_class === 'fleet_task' ? ['env_class'] : []),
  ];
  const graded = foreign.filter((name) => !used.includes(name) && isGiven(value[name]));
  const columns = Object.fromEntries(graded.map((name) => [name, value[name]]));
  // If `reset` is no object, it stays, and the task schema refuses it.
  const reset = isObject(value.reset) ? { ...columns, ...value.reset } : (value.reset ?? columns);
  return {
    row: {
      ...Object.fromEntries(kept),
      ...{ prompt: read.text, env_key, task_key },
      ...(value.split === undefined ? splitIn(extra.split) : {}),
      ...(graded.length === 0 ? {} : { reset }),
    },
  };
}

/** SkyRL Fleet Training names the environment in `data_source`, SkyRL Gym in `env_class`, verl in `data_source`. */
function environmentIn({ env_class, data_source }: Record<string, unknown>): unknown {
  return env_class === undefined || env_class === null || env_class === 'fleet_task'
    ? data_source
    : env_class;
}

const isGiven = (value: unknown): boolean => value !== undefined && value !== null;

function keyIn(row: Record<string, unknown>, extra: Record<string, unknown>, envKey: unknown): string | null {
  const id = nameIn(row.id);
  if (id !== null) return id;
  const index = nameIn(extra.index ?? row.index);
  // An index is unique only within its environment and split.
  return index && [nameIn(envKey), nameIn(extra.split), index].filter((name) => name !== null).join('/');
}

/** A text, or the digits of a whole number: pandas writes 3.0 if another row lacks the column. */
function nameIn(value: unknown): string | null {
  if (typeof value === 'string') return value === '' ? null : value;
  const number = numberIn(value);
  if (number === null) return null;
  const [, digits] = /^(-?\d+)(?:\.0+)?$/.exec(String(value)) ?? [];
  if (digits !== undefined) return String(BigInt(digits));
  return Number.isSafeInteger(number) ? String(number) : null;
}

/** Every split but `train` is for evaluation. */
function splitIn(split: unknown): { split?: 'train' | 'held_out' } {
  if (typeof split !== 'string' || split.trim() === '') return {};
  return { split: /^\s*train(ing)?\s*$/i.test(split) ? 'train' : 'held_out' };
}

/** The messages, also if they are JSON text, because the table's format has no lists. */
function messagesIn(asked: unknown): unknown {
  if (typeof asked !== 'string' || !/^\s*\[\s*\{/.test(asked)) return asked;
  // This is Python's notation, not JSON.
  if (/^\s*\[\s*\{\s*'(?:role|content)'\s*:/.test(asked)) return [asked];
  try {
    const read = parseJson(asked);
    return Array.isArray(read) && read.every((one) => isObject(one) && 'role' in one) ? read : asked;
  } catch {
    return asked;
  }
}

/** The text of a prompt that is one message of the user. */
function promptIn(messages: readonly unknown[]): { text: string } | { problem: string } {
  if (messages.length === 0) return { problem: 'prompt is an empty list; give the text of the request' };
  const texts = messages.map((message) => (isObject(message) ? textOf(message.content) : null));
  const roles = messages.map((message) => (isObject(message) ? message.role : undefined));
  const [text] = texts;
  if (roles.length === 1 && roles[0] === 'user' && typeof text === 'string') return { text };
  if (roles.some((role) => typeof role !== 'string'))
    return {
      problem:
        'prompt is a list of something else than messages (Python’s form of a list is none, either); give the text of the request',
    };
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
    isObject(part) && part.type === 'text' && typeof part.text === 'string' ? part.text : null,
  );
  return parts.includes(null) ? null : parts.join('');
}
