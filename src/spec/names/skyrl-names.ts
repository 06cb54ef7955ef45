// SkyRL's names that differ from ours, and those of SkyRL Fleet Training (skyrl.yaml). Each remedy says which names to write instead.
import { isObject } from '../../base/json.js';
import { isSecretKey } from '../../base/secrets.js';
import { type ToolFormatName, toolFormatNames } from '../tool-format-names.js';
import { isWithoutPlace, namesIn, remedyOf } from './trainer-names.js';

/** Inputs of the launch workflows that set a key of ours. */
export const launchInputs: Record<string, string> = {
  max_steps: 'trainer.max_training_steps',
  batch_size: 'trainer.train_batch_size',
  n_samples: 'generator.n_samples_per_prompt',
  n_samples_per_prompt: 'generator.n_samples_per_prompt',
  max_turns: 'generator.max_turns',
  max_input_length: 'generator.max_input_length',
  max_generate_length: 'generator.max_generate_length',
};

/** What vLLM, SGLang and verl call the forms of tool calls. */
const parsers: Record<ToolFormatName, string> = {
  hermes: 'json qwen qwen25 qwen2_5 qwen3',
  qwen_xml: 'xml qwen3_coder qwen3_xml qwen3coder',
  llama_json: 'llama llama3 llama3_json llama4_json',
  mistral: 'mistral_json',
  gpt_oss: 'openai harmony gptoss',
};
const isCalled = Object.fromEntries(
  Object.entries(parsers).flatMap(([name, others]) =>
    others.split(' ').map((other) => [other, `its name here is ${name}`] as const),
  ),
);

const toolFormats: Record<string, Record<string, string>> = {
  tool_format: isCalled,
  tools_format: Object.fromEntries(
    toolFormatNames.map((name) => [
      name,
      `tools_format is how the prompt lists the tools; write generator.tool_format: ${name} for how the model calls them`,
    ]),
  ),
};

interface Tables {
  paths: Record<string, string>;
  keys: Record<string, string>;
  server_options: string;
  values: Record<string, Record<string, string>>;
}

let read: Tables | undefined;

function tables(): Tables {
  if (read) return read;
  const { paths, values, ...others } = namesIn<Tables>('skyrl.yaml');
  const launched = Object.entries(launchInputs).map(([name, key]) => [name, `write ${key}`] as const);
  read = {
    ...others,
    paths: { ...paths, ...Object.fromEntries(launched) },
    values: { ...values, ...toolFormats },
  };
  return read;
}

/** A SkyRL key, and what to write instead. */
interface KeyFix {
  path: PropertyKey[];
  fix: string;
}

/**
 * What to write instead of an unknown key and, if it holds a mapping that SkyRL has, of each key in it. `known`: all keys of a run spec
 * with their paths. Null if neither SkyRL nor another trainer has such a key here, and for a mapping that SkyRL lacks.
 */
export function fixesOf(
  path: readonly PropertyKey[],
  value: unknown,
  known: readonly string[],
): KeyFix[] | null {
  const name = nameOf(path);
  const isGroup =
    Object.keys(tables().paths).some((other) => other.startsWith(`${name}.`)) || name === 'envs';
  if (isGroup && isObject(value) && Object.keys(value).length > 0)
    return Object.entries(value).flatMap(([key, child]): KeyFix[] => {
      const below = [...path, key];
      return fixesOf(below, child, known) ?? [{ path: below, fix: nearestFix(path) }];
    });
  if (isObject(value) && own(tables().paths, name) === null && !isWithoutPlace(String(path.at(-1))))
    return null;
  const fix = fixOf(path, value, known);
  return fix === null ? null : [{ path: [...path], fix }];
}

const neverHere = 'there is none here: remove it';

/** The remedy of the nearest listed path above. */
function nearestFix(path: readonly PropertyKey[]): string {
  return own(tables().paths, nameOf(path)) ?? (path.length > 1 ? nearestFix(path.slice(0, -1)) : neverHere);
}

function fixOf(path: readonly PropertyKey[], value: unknown, known: readonly string[]): string | null {
  const { paths, keys, server_options } = tables();
  const name = nameOf(path);
  const key = String(path.at(-1));
  const listed = own(paths, name);
  if (listed !== null) return listed;
  if (name.startsWith('generator.') && server_options.split(' ').includes(key))
    return own(paths, 'inference_backend');
  if (name === `envs.${key}`) return isSecretKey(key) ? secretFix : own(paths, key.toLowerCase());
  if (isSecretKey(key)) return name.includes('.skyrl_gym.') ? secretFix : own(keys, key);
  if (name === `trainer.algorithm.${key}` && known.includes(`trainer.${key}`)) {
    const fix = fixOfValue(path, value);
    return `write trainer.${key}${fix === null ? '' : `; ${fix}`}`;
  }
  return own(keys, key) ?? remedyOf(name.split('.'));
}

export const secretFix =
  'a spec must not hold secrets: docs/security.md names the variable or file for each secret';

/** The path without the indices of lists. */
function nameOf(path: readonly PropertyKey[]): string {
  return path.filter((part) => typeof part !== 'number').join('.');
}

function own(table: Readonly<Record<string, string>>, key: string): string | null {
  return Object.hasOwn(table, key) ? (table[key] as string) : null;
}

/** What to write instead of another trainer's value; null if none has such a value or it is the same here. */
export function fixOfValue(path: readonly PropertyKey[], value: unknown): string | null {
  if (typeof value !== 'string') return null;
  if (/\$\{.+\}/.test(value)) return 'write the value itself: references such as ${…} are not resolved';
  const known = tables().values[String(path.at(-1))] ?? {};
  return own(known, value) ?? own(known, value.toLowerCase().replaceAll('-', '_'));
}
