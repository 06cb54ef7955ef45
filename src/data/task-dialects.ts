// The forms in which task files come: one object a line, an array, or `{"tasks": […]}`; and the names that rows of SkyRL Fleet Training have for
// what ours name otherwise.

export interface TaskRow {
  /** Where it stands, for problems: `line 3`, or `task 3` of an array. */
  place: string;
  value: unknown;
}

/** Rows of the file's text. Adds what cannot be read to `problems`, when its place comes. */
export function* taskRows(text: string, problems: string[]): Generator<TaskRow> {
  const whole = /^\s*[[{]/.test(text) ? wholeFile(text) : null;
  if (whole) for (const [index, value] of whole.entries()) yield { place: `task ${index + 1}`, value };
  else for (const { line, value } of jsonLines(text, problems)) yield { place: `line ${line}`, value };
}

/** Null if the text is not one JSON value that holds tasks. */
function wholeFile(text: string): unknown[] | null {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  if (Array.isArray(value)) return value as unknown[];
  const { tasks } = value as { tasks?: unknown };
  return Array.isArray(tasks) ? (tasks as unknown[]) : null;
}

export function* jsonLines(text: string, problems: string[]): Generator<{ line: number; value: unknown }> {
  const lines = text.split('\n');
  for (const [index, content] of lines.entries()) {
    if (content.trim() === '') continue;
    let value: unknown;
    try {
      value = JSON.parse(content);
    } catch {
      const cutOff =
        index === lines.length - 1
          ? ' (the file seems cut off: its last line does not end with a line break)'
          : '';
      problems.push(`line ${index + 1}: not JSON${cutOff}`);
      continue;
    }
    yield { line: index + 1, value };
  }
}

/** Their names, and ours. */
const fleetNames: Readonly<Record<string, string>> = {
  key: 'task_key',
  env_id: 'env_key',
  version: 'env_version',
  data_id: 'data_key',
  task_modality: 'modality',
  verifier_func: 'verifier_code',
};
/** Keys of a Fleet row that mean the same as ours. */
const sharedNames = [
  ...[
    'task_key',
    'prompt',
    'env_key',
    'env_version',
    'data_key',
    'data_version',
    'modality',
    'env_variables',
  ],
  ...['difficulty', 'verifier_code', 'split', 'template', 'reset'],
];

/** A row of Fleet in our names, without what only Fleet's own programs read; any other value unchanged. */
export function inOurNames(value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  const row = value as Record<string, unknown>;
  if (!Object.keys(fleetNames).some((name) => name in row)) return value;
  const ours: Record<string, unknown> = {};
  for (const [name, held] of Object.entries(row)) {
    const our = fleetNames[name] ?? name;
    // A row that has both names means ours.
    if (!sharedNames.includes(our) || held === null || (our !== name && our in row)) continue;
    ours[our] = our === 'env_variables' ? asTexts(held) : held;
  }
  return ours;
}

/** Facts for the prompt may be numbers there. */
function asTexts(held: unknown): unknown {
  if (typeof held !== 'object' || held === null || Array.isArray(held)) return held;
  return Object.fromEntries(
    Object.entries(held).flatMap(([name, value]) =>
      value === null ? [] : [[name, typeof value === 'string' ? value : JSON.stringify(value)]],
    ),
  );
}
