// Converts an argument that was written as text to the type in the tool's schema.
import { isObject, numberIn, parseJson } from '../../base/json.js';
import type { JsonSchemaObject } from '../../spec/records/task.js';
import { jsonTypesOf, propertiesOf, valuesOf } from '../schema-type.js';

type TypedValue = { value: unknown } | { problem: string };

/** The value is the text itself if there is no schema, or if the schema allows text and the text fits no other allowed type. */
export function valueOfType(written: string, schema: JsonSchemaObject | undefined, key: string): TypedValue {
  const properties = propertiesOf(schema);
  const property = Object.hasOwn(properties, key) ? properties[key] : undefined;
  const types = jsonTypesOf(property, schema);
  const text = written.trim();
  if (types.has('string') && valuesOf(property, schema).includes(text)) return { value: text };
  // Only for a text can the word "none" be a value.
  const nothing = types.has('string') ? /^(null|None)$/ : /^(null|none)$/i;
  if (types.has('null') && nothing.test(text)) return { value: null };
  if (types.has('boolean') && /^(true|false)$/i.test(text)) return { value: /^true$/i.test(text) };
  const parsed = jsonIn(text);
  if (parsed !== undefined && [...types].some((type) => isOf(type, parsed))) return { value: parsed };
  const wanted = [...types].filter((type) => type !== 'null');
  if (types.size === 0 || types.has('string')) return { value: written };
  return { problem: `must be ${wanted.length === 0 ? 'null' : `of type ${wanted.join(' or ')}`}` };
}

function isOf(type: string, value: unknown): boolean {
  const number = numberIn(value);
  if (type === 'number') return number !== null;
  if (type === 'integer') return number !== null && Number.isInteger(number);
  if (type === 'array') return Array.isArray(value);
  return type === 'object' && isObject(value);
}

function jsonIn(text: string): unknown {
  try {
    return parseJson(text);
  } catch {
    return undefined;
  }
}
