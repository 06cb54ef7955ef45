// Lists the available tools as text for the system prompt.
import type { SamplingPlan } from '../spec/records/parts.js';
import type { ToolSpec } from '../spec/records/task.js';

export function toolListText(tools: readonly ToolSpec[], format: SamplingPlan['tools_format']): string {
  if (format === 'signatures') return tools.map(signature).join('\n');
  return JSON.stringify(format === 'openai' ? tools.map(openAiTool) : tools, null, 2);
}

function openAiTool({ name, description, input_schema: parameters }: ToolSpec): object {
  return { type: 'function', function: { name, description, parameters } };
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
