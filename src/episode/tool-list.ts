// Lists the available tools as text for the system prompt.
import { isObject, writeJson } from '../base/json.js';
import type { SamplingPlan } from '../spec/records/parts.js';
import type { ToolSpec } from '../spec/records/task.js';
import { propertiesOf, SchemaTypes } from './schema-type.js';

/** `isShort`: signatures leave out the values of enumerations, which small models learn from demonstrations. */
export function toolListText(
  tools: readonly ToolSpec[],
  format: SamplingPlan['tools_format'],
  { isShort = false } = {},
): string {
  if (format === 'signatures') return tools.map((tool) => signature(tool, isShort)).join('\n');
  return writeJson(format === 'openai' ? tools.map(openAiTool) : tools, 2);
}

function openAiTool({ name, description, input_schema: parameters }: ToolSpec): object {
  return { type: 'function', function: { name, description, parameters } };
}

/** `name(arg, arg: int, optional?, **others: int)`; the type of a string argument is left out. */
function signature({ name, input_schema: schema }: ToolSpec, leavesOutValues: boolean): string {
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  const types = new SchemaTypes(schema, { leavesOutValues });
  const parameters = Object.entries(propertiesOf(schema)).map(([parameter, value]) => {
    const optional = required.has(parameter) ? '' : '?';
    const type = types.textOf(value);
    return type === '' || type === 'str' ? `${parameter}${optional}` : `${parameter}${optional}: ${type}`;
  });
  const others = schema['additionalProperties'];
  const free = types.textOf(others);
  if (free !== '') parameters.push(`**others: ${free}`);
  else if (parameters.length === 0 && (others === true || isObject(others))) parameters.push('**others');
  return `${name}(${parameters.join(', ')})`;
}
