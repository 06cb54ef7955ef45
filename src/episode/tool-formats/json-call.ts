// Reads calls that are JSON. Models write the same call with different keys; what has one meaning is accepted, and no argument is dropped.
import { isObject, parseJson } from '../../base/json.js';
import type { ReadCall } from './turn-piece.js';

const nameKeys = ['name', 'tool', 'tool_name', 'function'] as const;
const argumentKeys = ['arguments', 'params', 'parameters', 'args', 'input', 'kwargs'] as const;
/** They name a call, and say nothing about what it does. */
const idleKeys: readonly string[] = ['id', 'type', 'index', 'call_id', 'tool_call_id'];

/** Index behind the JSON object or list that begins at `start`; null if it does not end. */
export function endOfJson(text: string, start: number): number | null {
  let [depth, isString] = [0, false];
  for (let at = start; at < text.length; at++) {
    const character = text[at];
    if (isString) {
      if (character === '\\') at += 1;
      else if (character === '"') isString = false;
    } else if (character === '"') isString = true;
    else if (character === '{' || character === '[') depth += 1;
    else if ((character === '}' || character === ']') && --depth === 0) return at + 1;
  }
  return null;
}

/** The calls of a JSON text: an object is one, a list has one or more. */
export function callsInJson(text: string): ReadCall[] {
  let value: unknown;
  try {
    value = parseJson(text);
  } catch {
    return [{ problem: 'the tool call is not valid JSON' }];
  }
  if (!Array.isArray(value)) return [callOf(value)];
  return value.length === 0 ? [{ problem: 'the list of tool calls is empty' }] : value.map(callOf);
}

/** `value`: an object with name and arguments, or one in OpenAI's form, `{"type": "function", "function": {…}}`. */
export function callOf(value: unknown): ReadCall {
  if (!isObject(value)) return { problem: 'the tool call must be a JSON object' };
  if (isObject(value['function'])) {
    const { function: wrapped, ...rest } = value;
    return unknownKey(rest, idleKeys) ?? callOf(wrapped);
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
  const unknown = unknownKey(value, [nameKey, ...argumentKeys, ...idleKeys]);
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
    return isObject(inner) ? inner : null;
  } catch {
    return null;
  }
}

function unknownKey(value: object, known: readonly string[]): ReadCall | null {
  const key = Object.keys(value).find((key) => !known.includes(key));
  return key === undefined
    ? null
    : { problem: `"${key}" is no key of a tool call: put arguments into "arguments"` };
}
