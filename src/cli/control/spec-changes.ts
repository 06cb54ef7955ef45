// Changes a spec by command-line flags: `--set lr=1e-4 --set trainer.max_training_steps=80`.
import { parse as parseYaml } from 'yaml';
import type { RunSpec } from '../../spec/run-spec.js';
import { parseRunSpec } from '../../spec/spec-input.js';

/** Values are YAML. Throws `InvalidSpec` if a change cannot be understood (it names the change) or the result is not a valid spec. */
export function changedSpec(spec: RunSpec, changes: readonly string[]): RunSpec {
  const changed = structuredClone(spec) as unknown as Record<string, unknown>;
  for (const change of changes) {
    const at = change.indexOf('=');
    if (at < 1)
      throw new Error(`${JSON.stringify(change)} is not understood: give NAME=VALUE, for example lr=0.0001`);
    const name = change.slice(0, at);
    set(changed, pathOf(spec, name).split('.'), parseYaml(change.slice(at + 1)), change);
  }
  return parseRunSpec(changed);
}

/** Settings of the trainer and the generator need no path before them. An unknown name is taken for one of these settings. */
function pathOf(spec: RunSpec, name: string): string {
  if (name in spec || name.includes('.')) return name;
  return name in spec.generator ? `generator.${name}` : `trainer.${name}`;
}

function set(target: Record<string, unknown>, path: readonly string[], value: unknown, change: string): void {
  const [key = '', ...rest] = path;
  if (rest.length === 0) {
    target[key] = value;
    return;
  }
  const inner = Object.hasOwn(target, key) ? target[key] : undefined;
  if (typeof inner !== 'object' || inner === null)
    throw new Error(`${JSON.stringify(change)} is not understood: the spec has no section "${key}"`);
  set(inner as Record<string, unknown>, rest, value, change);
}
