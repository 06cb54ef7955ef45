// Reads the tools of an episode back from its system prompt, because records do not contain them and some formats need them to read a turn.
import { isObject, parseJson } from '../../base/json.js';
import { shortTypes } from '../../episode/schema-type.js';
import type { ToolSpec } from '../../spec/records/task.js';

/** `known`: the environment's tools when the run began, with more details than signatures. `called`: names of the tools that the episode called. */
export function promptTools(
  prompt: string,
  known: readonly ToolSpec[],
  called: readonly string[],
): ToolSpec[] {
  const listed = jsonTools(prompt) ?? [...known, ...signedTools(prompt)];
  const all = [...listed, ...called.map(nameOnly)];
  return all.filter(({ name }, at) => all.findIndex((tool) => tool.name === name) === at);
}

/** The first JSON list of tools; null if there is none. All its lines but the brackets are indented. */
function jsonTools(prompt: string): ToolSpec[] | null {
  for (const [list] of prompt.matchAll(/^\[\n[^]*?\n\]$/gm)) {
    const tools = toolsIn(list);
    if (tools) return tools;
  }
  return null;
}

function toolsIn(json: string): ToolSpec[] | null {
  try {
    const list = parseJson(json);
    const tools = Array.isArray(list) ? list.map(toolOf) : [];
    return tools.length > 0 && tools.every((tool) => tool !== null) ? tools : null;
  } catch {
    return null;
  }
}

function toolOf(value: unknown): ToolSpec | null {
  const tool = isObject(value) && isObject(value['function']) ? value['function'] : value;
  if (!isObject(tool) || typeof tool['name'] !== 'string') return null;
  const schema = tool['input_schema'] ?? tool['parameters'];
  if (!isObject(schema)) return null;
  const properties = isObject(schema['properties']) ? schema['properties'] : {};
  const input_schema = { ...schema, type: 'object' as const, properties };
  return { ...nameOnly(tool['name']), input_schema: input_schema as ToolSpec['input_schema'] };
}

/** Tools of a list of signatures: `name(argument: int, optional?)`, one a line. */
function signedTools(prompt: string): ToolSpec[] {
  return [...prompt.matchAll(/^([\w.-]+)\((.*)\)$/gm)].map(([, name = '', parameters = '']) => {
    const properties = Object.fromEntries(
      flat(parameters)
        .split(', ')
        .map((parameter) => parameter.split(/\??: |\?$/))
        .map(([key = '', types = '']) => [key, { type: types.split(/[|&]/).flatMap(schemaType) }]),
    );
    const input_schema = { type: 'object', properties } as unknown as ToolSpec['input_schema'];
    return { ...nameOnly(name), input_schema };
  });
}

/** The types without their parts: `list` for `list[{id: int}]`, `str` for `"open"`. */
function flat(types: string): string {
  let text = types.replace(/"(?:[^"\\]|\\.)*"/g, 'str');
  for (let before = ''; before !== text;) {
    before = text;
    text = text.replace(/\[[^[\]{}]*\]/g, '').replace(/\{[^[\]{}]*\}/g, 'dict');
  }
  return text;
}

function schemaType(short: string): string[] {
  const found = [...shortTypes].find(([, written]) => written === short.trim());
  return found ? [found[0]] : short.trim() === 'null' ? ['null'] : [];
}

function nameOnly(name: string): ToolSpec {
  return { name, description: '', input_schema: { type: 'object', properties: {} } };
}
