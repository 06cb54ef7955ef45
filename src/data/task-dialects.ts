// Converts rows of Fleet's task files to our names.
import { isObject, numberIn, writeJson } from '../base/json.js';

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
  ...['difficulty', 'verifier_code', 'verifier_runtime_version', 'split', 'template', 'reset'],
];

/** Columns that only rows of Fleet have. */
const ofFleet = ['env_id', 'data_id', 'task_modality', 'verifier_func'];
const plain = (name: string): string => name.toLowerCase().replaceAll(/[-_\s]/g, '');
const plainNames = new Set([...Object.keys(fleetNames), ...sharedNames].map(plain));

/** A row of Fleet with our names, without columns that only Fleet's own programs read; null if the value is no such row. */
export function fleetRow(value: unknown): Record<string, unknown> | null {
  if (!isObject(value)) return null;
  const isWhole = ofFleet.some((name) => name in value);
  if (!isWhole && (!('key' in value) || 'task_key' in value)) return null;
  const ours: Record<string, unknown> = {};
  for (const [name, held] of Object.entries(value)) {
    const our = fleetNames[name] ?? name;
    // These columns stay, so that the task schema refuses them: misspelt names, and all unknown columns if `key` is the row's only Fleet name.
    const isLeftOut = !sharedNames.includes(our) && isWhole && !plainNames.has(plain(name));
    // If a row has both names, ours counts.
    if (
      isLeftOut ||
      held === null ||
      (our === 'verifier_code' && held === '') ||
      (our !== name && our in value)
    )
      continue;
    ours[our] = our === 'env_variables' ? withoutNull(held) : held;
  }
  // In `name:version`, Fleet's own client reads the version from the name.
  const [, name, version] = /^([^:]+):(.+)$/.exec(typeof ours.env_key === 'string' ? ours.env_key : '') ?? [];
  return name === undefined ? ours : { ...ours, env_key: name, env_version: version };
}

/** Fleet's facts for the prompt may be null, which means absent, or objects, which become JSON text. */
function withoutNull(held: unknown): unknown {
  if (!isObject(held)) return held;
  return Object.fromEntries(
    Object.entries(held).flatMap(([name, value]) =>
      value === null ? [] : [[name, typeof value === 'object' ? writeJson(value) : value]],
    ),
  );
}

/** The row with numbers and booleans in its `env_variables` turned into text. */
export function withTextVariables(row: unknown): unknown {
  if (!isObject(row) || !isObject(row.env_variables)) return row;
  const texts = Object.entries(row.env_variables).map(([name, value]) => [name, textOf(value)]);
  return { ...row, env_variables: Object.fromEntries(texts) as unknown };
}

function textOf(value: unknown): unknown {
  return numberIn(value) !== null || typeof value === 'boolean' ? writeJson(value) : value;
}
