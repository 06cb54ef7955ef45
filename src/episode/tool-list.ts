// Lists the available tools as text for the system prompt.
import type { ToolSpec } from '../spec/records/task.js';

export function toolListText(tools: readonly ToolSpec[], format: 'json' | 'signatures'): string {
  return format === 'json' ? JSON.stringify(tools, null, 2) : tools.map(signature).join('\n');
}

const shortTypes: Readonly<Record<string, string>> = {
  integer: 'int',
  number: 'float',
  boolean: 'bool',
  array: 'list',
  object: 'dict',
};

/** `name(arg, arg: int, optional?)`; the type of a string argument is left out. */
function signature({ name, input_schema: schema }: ToolSpec): string {
  const required = new Set(schema.required ?? []);
  const parameters = Object.entries(schema.properties).map(([parameter, { type }]) => {
    const optional = required.has(parameter) ? '' : '?';
    return type === undefined || type === 'string'
      ? `${parameter}${optional}`
      : `${parameter}${optional}: ${shortTypes[type] ?? type}`;
  });
  return `${name}(${parameters.join(', ')})`;
}
