// Writes calls in each format, as its models write them.
import { isObject, writeJson } from '../../base/json.js';
import type { ToolCall } from '../../spec/records/task.js';

/** Without spaces, as the demonstrations of the example apps have them. */
export function hermesCall({ name, arguments: given }: ToolCall, write = writeJson): string {
  return `<tool_call>${write({ name, arguments: given })}</tool_call>`;
}

/** The form has no types: a text is written unchanged, any other value as JSON. */
export function xmlCall({ name, arguments: given }: ToolCall): string {
  const parameters = Object.entries(given).map(([key, value]) => {
    const written = typeof value === 'string' ? value : spacedJson(value);
    return `<parameter=${key}>\n${written}\n</parameter>\n`;
  });
  return `<tool_call>\n<function=${name}>\n${parameters.join('')}</function>\n</tool_call>`;
}

export function llamaCall({ name, arguments: parameters }: ToolCall): string {
  return spacedJson({ name, parameters });
}

export function mistralCall({ name, arguments: given }: ToolCall): string {
  return `[TOOL_CALLS]${spacedJson([{ name, arguments: given }])}`;
}

/** Escapes characters in the arguments that look like a mark, because Harmony has no other way to quote them. */
export function harmonyCall({ name, arguments: given }: ToolCall): string {
  const json = spacedJson(given).replaceAll('<|', '\\u003c|');
  return `<|channel|>commentary to=functions.${name} <|constrain|>json<|message|>${json}<|call|>`;
}

/** JSON as Python, and so chat templates, write it: with a space after each comma and colon. */
export function spacedJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(spacedJson).join(', ')}]`;
  if (!isObject(value)) return writeJson(value);
  const members = Object.entries(value).map(([key, member]) => `${writeJson(key)}: ${spacedJson(member)}`);
  return `{${members.join(', ')}}`;
}
