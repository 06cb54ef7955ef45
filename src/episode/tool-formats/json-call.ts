// Reads calls that are JSON. Models write the same call with different keys; every unambiguous form is accepted, and no argument is dropped.
import { isObject, numberIn, parseJson, repeatedKey } from '../../base/json.js';
import type { ReadCall } from './turn-piece.js';

export const nameKeys = ['name', 'tool', 'tool_name', 'function'] as const;
const argumentKeys = ['arguments', 'params', 'parameters', 'args', 'input', 'kwargs'] as const;

const isText = (value: unknown): boolean => value === null || typeof value === 'string';
const callTypes: readonly unknown[] = ['function', 'function_call', 'tool_call', 'tool_use'];
/**
 * Keys that may accompany a call without changing its meaning, with the values that they then have. With another value, the key may be an
 * argument that the model put in the wrong place.
 */
const idleKeys = new Map<string, (value: unknown) => boolean>([
  ['type', (value) => callTypes.includes(value)],
  ['id', isText],
  ['call_id', isText],
  ['tool_call_id', isText],
  ['index', (value) => Number.isInteger(numberIn(value))],
]);

/** The calls of a JSON text: an object is one, a list has one or more. */
export function callsInJson(text: string): ReadCall[] {
  let value: unknown;
  try {
    value = parseJson(text);
  } catch {
    return [{ problem: 'the tool call is not valid JSON' }];
  }
  const ambiguous = ambiguousCall(text);
  if (ambiguous) return [ambiguous];
  if (!Array.isArray(value)) return [callOf(value)];
  return value.length === 0 ? [{ problem: 'the list of tool calls is empty' }] : value.map(callOf);
}

/** The call of a tool by its name, with the JSON text of its arguments. */
export function callWithArguments(name: string, json: string): ReadCall {
  try {
    const value = parseJson(json);
    return ambiguousCall(json) ?? callOf({ name, arguments: value });
  } catch {
    return { problem: 'the arguments of the tool call are not valid JSON' };
  }
}

/** The problem of a call in which a key stands twice, with different values; null if none does. `json`: valid JSON. */
export function ambiguousCall(json: string): ReadCall | null {
  const key = repeatedKey(json);
  return key === null ? null : { problem: `"${key}" stands twice in the tool call` };
}

/** `value`: an object with name and arguments, or one in OpenAI's form, `{"type": "function", "function": {…}}`. */
export function callOf(value: unknown): ReadCall {
  if (!isObject(value)) return { problem: 'the tool call must be a JSON object' };
  if (isObject(value['function'])) {
    const { function: wrapped, ...rest } = value;
    return unknownKey(rest, [...idleKeys.keys()]) ?? callOf(wrapped);
  }
  const names = nameKeys.filter((key) => Object.hasOwn(value, key));
  const [nameKey, otherName] = names;
  const name = nameKey && value[nameKey];
  if (nameKey === undefined || typeof name !== 'string' || name === '')
    return { problem: 'the tool call has no "name"' };
  if (otherName !== undefined) return { problem: `the tool call has both "${nameKey}" and "${otherName}"` };
  const [key, other] = argumentKeys.filter((key) => Object.hasOwn(value, key));
  if (key !== undefined && other !== undefined)
    return { problem: `the tool call has both "${key}" and "${other}": put all arguments into "arguments"` };
  // Without arguments, an id may be the only one: it is then no key of the call.
  const unknown = unknownKey(value, key === undefined ? ['type'] : [...idleKeys.keys()], [
    nameKey,
    ...argumentKeys,
  ]);
  if (unknown) return unknown;
  if (key === undefined) return { call: { name, arguments: {} } };
  const given = argumentsIn(value[key]);
  return given
    ? { call: { name, arguments: given } }
    : { problem: `"${key}" of the tool call must be a JSON object` };
}

/** Arguments may be JSON within a string, as in OpenAI's API. */
function argumentsIn(value: unknown): Record<string, unknown> | null {
  if (value === null || value === '') return {};
  if (typeof value !== 'string') return isObject(value) ? value : null;
  try {
    const inner = parseJson(value);
    return isObject(inner) && repeatedKey(value) === null ? inner : null;
  } catch {
    return null;
  }
}

function unknownKey(
  value: Record<string, unknown>,
  idle: readonly string[],
  known: readonly string[] = [],
): ReadCall | null {
  const isIdle = (key: string): boolean => idle.includes(key) && (idleKeys.get(key)?.(value[key]) ?? false);
  const key = Object.keys(value).find((key) => !known.includes(key) && !isIdle(key));
  return key === undefined
    ? null
    : { problem: `"${key}" is no key of a tool call: put arguments into "arguments"` };
}
