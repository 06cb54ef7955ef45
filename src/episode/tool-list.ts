// Lists the available tools as text for the system prompt.
import { appByName, appNames } from '../environments/apps/registry.js';
import type { SamplingPlan } from '../spec/records/parts.js';
import type { ToolSpec } from '../spec/records/task.js';
import { SchemaTypes } from './schema-type.js';

export function toolListText(tools: readonly ToolSpec[], format: SamplingPlan['tools_format']): string {
  if (format === 'signatures') return tools.map(signature).join('\n');
  return JSON.stringify(format === 'openai' ? tools.map(openAiTool) : tools, null, 2);
}

function openAiTool({ name, description, input_schema: parameters }: ToolSpec): object {
  return { type: 'function', function: { name, description, parameters } };
}

let taught: ReadonlySet<string> | undefined;

/**
 * Tools of the built-in apps. Their demonstrations teach the values that an argument may have, and the quickstart's prompts fit into its
 * context only without them.
 */
function taughtTools(): ReadonlySet<string> {
  return (taught ??= new Set(appNames.flatMap((app) => appByName(app).tools.map(identityOf))));
}

/** A tool is listed by a server with its keys in any order. */
function identityOf({ name, input_schema: { properties } }: ToolSpec): string {
  return JSON.stringify([name, properties]);
}

/** `name(arg, arg: int, optional?)`; the type of a string argument is left out. */
function signature(tool: ToolSpec): string {
  const { name, input_schema: schema } = tool;
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  const types = new SchemaTypes(schema, { leavesOutValues: taughtTools().has(identityOf(tool)) });
  const parameters = Object.entries<unknown>(schema.properties).map(([parameter, value]) => {
    const optional = required.has(parameter) ? '' : '?';
    const type = types.textOf(value);
    return type === '' || type === 'str' ? `${parameter}${optional}` : `${parameter}${optional}: ${type}`;
  });
  return `${name}(${parameters.join(', ')})`;
}
