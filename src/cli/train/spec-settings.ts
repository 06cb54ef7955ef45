// `longhaul train SPEC KEY=VALUE …`: settings that take the place of what the spec file says, such as `trainer.lr=1e-6`. The inputs of SkyRL
// Fleet Training's launch workflows are keys, too; they and SkyRL's own settings that differ here are refused with what to write instead.
import { parse } from 'yaml';
import { InvalidSpec, type SpecProblem } from '../../spec/invalid-spec.js';
import { launchInputs } from '../../spec/names/skyrl-names.js';

/** Launch inputs that choose tasks. Empty or `all` takes all of them. */
const filters: Record<string, { key: string; value: (text: string) => unknown }> = {
  env_key: { key: 'env_keys', value: listed },
  env_keys: { key: 'env_keys', value: listed },
  difficulty: { key: 'difficulty', value: (text) => listed(text).map(valueOf) },
  modality: { key: 'modality', value: (text) => text },
  max_tasks: { key: 'max_tasks', value: valueOf },
};

/** The file's content with the settings in it, not checked yet. Throws `InvalidSpec` for texts that are no `KEY=VALUE`. */
export function withSettings(input: unknown, settings: readonly string[]): unknown {
  const problems: SpecProblem[] = [];
  let changed = input;
  for (const setting of settings) {
    // Hydra's `+key=value` and `++key=value` add a key; here every key may be set.
    const [, given, text] = /^\+{0,2}([A-Za-z_][\w-]*(?:\.[\w-]+)*)=([^]*)$/.exec(setting) ?? [];
    if (given === undefined || text === undefined) {
      problems.push({
        path: '',
        problem: `"${setting.slice(0, 60)}" is no setting`,
        fix: 'write KEY=VALUE, such as trainer.lr=1e-6, after the spec file',
      });
      continue;
    }
    // The launch workflows hand their inputs on as variables: MAX_TASKS=4.
    const name = /^[A-Z][A-Z0-9_]*$/.test(given) ? given.toLowerCase() : given;
    const filter = Object.hasOwn(filters, name) ? filters[name] : undefined;
    const isEmpty = text.trim() === '';
    if (filter) {
      const all = isEmpty || text.trim() === 'all';
      changed = withValue(changed, ['data', filter.key], all ? undefined : filter.value(text));
    } else if (Object.hasOwn(launchInputs, name)) {
      if (!isEmpty) changed = withValue(changed, (launchInputs[name] as string).split('.'), valueOf(text));
    } else changed = withValue(changed, name.split('.'), valueOf(text));
  }
  if (problems.length > 0) throw new InvalidSpec(problems);
  return changed;
}

function listed(text: string): string[] {
  return text
    .split(',')
    .map((one) => one.trim())
    .filter((one) => one !== '');
}

/** A text that is no YAML stands for itself. */
function valueOf(text: string): unknown {
  try {
    return parse(text) as unknown;
  } catch {
    return text;
  }
}

/** A copy with `value` at the path; undefined removes the key. */
function withValue(within: unknown, [key, ...rest]: readonly string[], value: unknown): unknown {
  if (key === undefined) return value;
  if (Array.isArray(within) && /^\d+$/.test(key)) {
    const items: unknown[] = [...(within as unknown[])];
    items[Number(key)] = withValue(items[Number(key)], rest, value);
    return items;
  }
  const mapping = typeof within === 'object' && within !== null && !Array.isArray(within) ? within : {};
  const { [key]: before, ...others } = mapping as Record<string, unknown>;
  if (value === undefined && rest.length === 0) return others;
  return { ...others, [key]: withValue(before, rest, value) };
}
