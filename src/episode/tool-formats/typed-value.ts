// Gives an argument that was written as text the type that the tool's schema asks for.
import { isObject, numberIn, parseJson } from '../../base/json.js';
import type { JsonSchemaObject } from '../../spec/records/task.js';
import { referredSchema } from '../schema-type.js';

type TypedValue = { value: unknown } | { problem: string };

const mostReferences = 16;

/** Without a schema, or where it allows text that is nothing else, the value is the text itself. */
export function valueOfType(written: string, schema: JsonSchemaObject | undefined, key: string): TypedValue {
  const types = typesOf(schema?.properties[key], schema);
  const text = written.trim();
  if (types.has('null') && /^(null|none)$/i.test(text)) return { value: null };
  if (types.has('boolean') && /^(true|false)$/i.test(text)) return { value: /^true$/i.test(text) };
  const parsed = jsonIn(text);
  if (parsed !== undefined && [...types].some((type) => isOf(type, parsed))) return { value: parsed };
  const wanted = [...types].filter((type) => type !== 'null');
  if (wanted.length === 0 || types.has('string')) return { value: written };
  return { problem: `must be of type ${wanted.join(' or ')}` };
}

function isOf(type: string, value: unknown): boolean {
  const number = numberIn(value);
  if (type === 'number') return number !== null;
  if (type === 'integer') return number !== null && Number.isInteger(number);
  if (type === 'array') return Array.isArray(value);
  return type === 'object' && isObject(value);
}

/** JSON Schema's names of the types that a property may have; empty if it says none. */
function typesOf(property: unknown, root: unknown): Set<string> {
  const types = new Set<string>();
  const seen = new Set<unknown>();
  const add = (schema: unknown): void => {
    if (!isObject(schema) || seen.has(schema) || seen.size > mostReferences) return;
    seen.add(schema);
    const { type, enum: values } = schema;
    for (const one of Array.isArray(type) ? type : [type]) if (typeof one === 'string') types.add(one);
    if (type === undefined && Array.isArray(values)) for (const value of values) types.add(typeOf(value));
    for (const group of ['anyOf', 'oneOf', 'allOf'])
      if (Array.isArray(schema[group])) for (const one of schema[group] as unknown[]) add(one);
    if (typeof schema['$ref'] === 'string') add(referredSchema(root, schema['$ref']));
  };
  add(property);
  return types;
}

function typeOf(value: unknown): string {
  if (value === null) return 'null';
  return Array.isArray(value) ? 'array' : typeof value;
}

function jsonIn(text: string): unknown {
  try {
    return parseJson(text);
  } catch {
    return undefined;
  }
}
