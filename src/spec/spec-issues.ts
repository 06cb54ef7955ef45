// Turns zod's issues into problems that say what is wrong, where, and how to fix it.
import { z } from 'zod';
import type { SpecProblem } from './invalid-spec.js';
import { isObject, writeJson } from '../base/json.js';
import { nearestName, plainName } from '../base/nearest-name.js';
import { isSecretKey, secretInUrl } from '../base/secrets.js';
import { fixOfValue, fixesOf, secretFix } from './names/skyrl-names.js';
import { keyOf } from './names/trainer-names.js';

type Issue = z.core.$ZodIssue;

export function issueProblems(issues: readonly Issue[], schema: z.ZodType, input: unknown): SpecProblem[] {
  return issues.flatMap((issue) => {
    if (issue.code !== 'unrecognized_keys') return [problemOf(issue, schema, input)];
    return issue.keys.flatMap((key) => {
      const path = [...issue.path, key];
      return unknownKeys(path, valueAt(input, path), schema);
    });
  });
}

/** One line such as `prompt must be a text, not 5` or `there is no key "promt"; did you mean prompt?` */
export function inOneLine({ path, problem, fix }: SpecProblem): string {
  // A problem that starts with "there is" is a whole sentence; every other problem needs the field's path as its subject.
  const said = problem.startsWith('there is') ? problem : `${path === '' ? 'it' : path} ${problem}`;
  return `${said}${fix === '' ? '' : `; ${fix}`}`;
}

/** The path as text: `warm_start[0].lr`. */
function pathText(path: readonly PropertyKey[]): string {
  return path
    .map((part, i) => (typeof part === 'number' ? `[${part}]` : i === 0 ? String(part) : `.${String(part)}`))
    .join('');
}

/** One problem for each setting below the unknown key, if other trainers have such a mapping; else one for the key. */
function unknownKeys(path: readonly PropertyKey[], value: unknown, schema: z.ZodType): SpecProblem[] {
  const known = allKeyPaths(schema);
  const key = String(path.at(-1));
  const around = path.slice(0, -1);
  const here = keysAt(schema, around);
  // Command lines use this spelling.
  const spelt = key.replaceAll('-', '_');
  const ours = here.includes(spelt) ? pathText([...around, spelt]) : onlyPath(known, spelt);
  if (spelt !== key && ours !== null) return [noSuchKey(path, `write ${ours}`)];
  const meant = keyOf(inWords(path));
  const sibling = meant?.split('.').at(-1) ?? '';
  // Such as `warm_start[0].lr` for a learning rate there.
  if (here.includes(sibling) && inWords([...around, sibling]).join('.') !== meant)
    return [noSuchKey(path, `write ${pathText([...around, sibling])}`)];
  // In other schemas, keys with the same names have other meanings.
  const isRun = known.includes('trainer.max_training_steps');
  const fixes = isRun ? fixesOf(path, value, known) : null;
  if (fixes !== null) return fixes.map(({ path: at, fix }) => noSuchKey(at, fix));
  const near = nearestName(key, here);
  if (near === null && isRun && isObject(value)) {
    const below = Object.entries(value).flatMap(([name, child]) =>
      unknownKeys([...path, name], child, schema),
    );
    if (below.some(({ fix }) => fix !== nothingLikeIt)) return below;
    const whole = fixesOf(path, undefined, known)?.[0];
    if (whole) return [noSuchKey(path, whole.fix)];
  }
  return [noSuchKey(path, fixOfUnknown(path, near, here, known))];
}

/** The path of the key, if only one place has it. */
function onlyPath(known: readonly string[], key: string): string | null {
  const [path, other] = known.filter((one) => one.split('.').at(-1) === key);
  return path !== undefined && other === undefined ? path : null;
}

const inWords = (path: readonly PropertyKey[]): string[] =>
  path.filter((part) => typeof part !== 'number').map(String);

const nothingLikeIt = 'there is nothing like it here: remove it';

function fixOfUnknown(
  path: readonly PropertyKey[],
  near: string | null,
  here: readonly string[],
  known: readonly string[],
): string {
  const key = String(path.at(-1));
  if (near !== null) return `did you mean ${pathText([...path.slice(0, -1), near])}?`;
  if (isSecretKey(key)) return secretFix;
  const elsewhere = known.filter((other) => isMeantElsewhere(inWords(path), other));
  if (elsewhere.length > 0) return `it belongs at ${elsewhere.join(' or ')}`;
  return here.length > 0 ? `keys here: ${here.join(', ')}` : nothingLikeIt;
}

/** Names that mean different things in different places, such as a file, a phase or a price; they are not suggested from elsewhere. */
const ambiguous = new Set(
  'path name type mode kind version backend train sample prefill max_tokens seed run step to url'.split(' '),
);

/** True if `other` ends with the same key as the path, in any spelling; for an ambiguous key, its last two keys must be the same. */
function isMeantElsewhere(path: readonly string[], other: string): boolean {
  const keys = other.split('.');
  const count = ambiguous.has(keys.at(-1) ?? '') ? 2 : 1;
  const end = (parts: readonly string[]): string => parts.slice(-count).map(plainName).join('.');
  return keys.length >= count && end(keys) === end(path);
}

const noSuchKey = (path: readonly PropertyKey[], fix: string): SpecProblem => ({
  path: pathText(path),
  problem: noKey(String(path.at(-1))),
  fix,
});

const noKey = (key: string): string => `there is no key "${key}"`;

function problemOf(issue: Issue, schema: z.ZodType, input: unknown): SpecProblem {
  const path = pathText(issue.path);
  const value = valueAt(input, issue.path);
  if (value === undefined && issue.path.length > 0) {
    const meaning = schemaAt(schema, issue.path)?.description;
    return {
      path,
      problem: 'is missing',
      fix: meaning === undefined ? '' : `it says: ${withoutLinks(meaning)}`,
    };
  }
  const secret = typeof value === 'string' && secretInUrl(value) !== null;
  const shown = secret ? 'a URL with a secret in it' : writeJson(value).slice(0, 60);
  switch (issue.code) {
    case 'invalid_type':
      return {
        path,
        problem: `must be ${typeWords[issue.expected] ?? issue.expected}, not ${shown}`,
        fix: fixOfValue(issue.path, value) ?? fixOfShortForm(path, value, schema),
      };
    case 'too_small':
      return {
        path,
        problem: `must be ${issue.inclusive === false ? 'more than' : 'at least'} ${issue.minimum}${unitOf(issue.origin)}, not ${shown}`,
        fix: '',
      };
    case 'too_big':
      return {
        path,
        problem: `must be ${issue.inclusive === false ? 'less than' : 'at most'} ${issue.maximum}${unitOf(issue.origin)}, not ${shown}`,
        fix: '',
      };
    case 'not_multiple_of':
      return {
        path,
        problem: `must be a multiple of ${issue.divisor}, not ${shown}`,
        fix: nearestMultiple(value, issue.divisor),
      };
    case 'invalid_value': {
      const fix = fixOfValue(issue.path, value) ?? fixOfChoice(value, issue.values);
      return {
        path,
        problem: `must be ${issue.values.map((one) => JSON.stringify(one)).join(' or ')}, not ${shown}`,
        fix,
      };
    }
    case 'invalid_format':
      return {
        path,
        problem:
          issue.format === 'url'
            ? `must be a URL like http://host:port, not ${shown}`
            : `${issue.message}; it is ${shown}`,
        fix: '',
      };
    case 'invalid_union': {
      const kinds = issue.errors.flatMap((one) =>
        one.flatMap((inner) => (inner.code === 'invalid_type' ? [inner.expected] : [])),
      );
      const words = [...new Set(kinds)].map((kind) => typeWords[kind] ?? kind);
      if (words.length === 0) return { path, problem: issue.message, fix: '' };
      return { path, problem: `must be ${words.join(' or ')}, not ${shown}`, fix: '' };
    }
    case 'invalid_key': {
      const key = String(issue.path.at(-1));
      const spelt = key.replaceAll(/[-\s]/g, '_');
      return {
        path,
        problem: issue.issues[0]?.message ?? issue.message,
        fix: spelt === key ? '' : `did you mean ${pathText([...issue.path.slice(0, -1), spelt])}?`,
      };
    }
    default:
      return { path, problem: issue.message, fix: '' };
  }
}

/** How to write the nearest of the values; empty if none is near. */
function fixOfChoice(value: unknown, choices: readonly unknown[]): string {
  if (typeof value !== 'string') return '';
  const same = choices.find((choice) => typeof choice !== 'string' && String(choice) === value);
  if (same !== undefined) return `write ${value} without quotation marks`;
  const near = nearestName(
    value,
    choices.filter((choice) => typeof choice === 'string'),
  );
  return near === null ? '' : `did you mean "${near}"?`;
}

/** How to write a mapping of which a run spec has only the main value: `model: DIR`. */
function fixOfShortForm(path: string, value: unknown, schema: z.ZodType): string {
  if (typeof value !== 'string' || !allKeyPaths(schema).includes('trainer.max_training_steps')) return '';
  if (path === 'model') return 'write model: {name: …, path: FOLDER}';
  if (path === 'data') return `write data: {tasks: ${value}}`;
  return /^environments\[\d+\]$/.test(path) ? `write env_key: ${value}` : '';
}

/** Replaces each Markdown link by its text, as a terminal cannot follow it. */
function withoutLinks(markdown: string): string {
  return markdown.replace(/\[([^\]]*)\]\([^)]*\)/g, '$1');
}

const typeWords: Record<string, string> = {
  object: 'a mapping of keys to values',
  record: 'a mapping of keys to values',
  array: 'a list',
  tuple: 'a list of two numbers',
  string: 'text',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
};

function unitOf(origin: string): string {
  if (origin === 'array') return ' entries';
  return origin === 'string' ? ' characters' : '';
}

function nearestMultiple(value: unknown, divisor: number | bigint): string {
  if (typeof value !== 'number') return '';
  const unit = Number(divisor);
  const below = Math.floor(value / unit) * unit;
  return below > 0 ? `${below} and ${below + unit} are the nearest` : `${unit} is the nearest`;
}

function valueAt(input: unknown, path: readonly PropertyKey[]): unknown {
  return path.reduce<unknown>(
    (value, part) =>
      typeof value === 'object' && value !== null ? (value as Record<PropertyKey, unknown>)[part] : undefined,
    input,
  );
}

/** The schema of the value itself, without zod's wrappers for defaults and optional values. */
function unwrapped(schema: z.core.$ZodType): z.core.$ZodType {
  let inner = schema;
  while (
    inner instanceof z.ZodDefault ||
    inner instanceof z.ZodPrefault ||
    inner instanceof z.ZodOptional ||
    inner instanceof z.ZodExactOptional
  ) {
    inner = inner.def.innerType;
  }
  return inner;
}

function schemaAt(schema: z.ZodType, path: readonly PropertyKey[]): z.ZodType | undefined {
  let here: z.core.$ZodType | undefined = schema;
  for (const part of path) {
    if (here === undefined) return undefined;
    const inner: z.core.$ZodType = unwrapped(here);
    if (inner instanceof z.ZodObject) here = (inner.shape as Record<string, z.ZodType>)[String(part)];
    else if (inner instanceof z.ZodArray) here = inner.element;
    else return undefined;
  }
  return here as z.ZodType | undefined;
}

function keysAt(schema: z.ZodType, path: readonly PropertyKey[]): string[] {
  const here = schemaAt(schema, path);
  const inner = here && unwrapped(here);
  return inner instanceof z.ZodObject ? Object.keys(inner.shape) : [];
}

/** The paths of all keys of the schema, in order: `trainer.lr`, `warm_start[].lr`. */
export function allKeyPaths(schema: z.core.$ZodType, prefix = ''): string[] {
  const inner = unwrapped(schema);
  if (inner instanceof z.ZodArray) return allKeyPaths(inner.element, `${prefix}[]`);
  if (!(inner instanceof z.ZodObject)) return [];
  return Object.entries(inner.shape as Record<string, z.ZodType>).flatMap(([key, child]) => {
    const path = prefix === '' ? key : `${prefix}.${key}`;
    return [path, ...allKeyPaths(child, path)];
  });
}
