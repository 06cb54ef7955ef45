// Reads a tool's parameters from its JSON Schema. They may be behind a reference or in parts, as zod-to-json-schema and pydantic write them.
import { isDeepStrictEqual } from 'node:util';
import { isObject } from '../base/json.js';
import { referredSchema } from '../base/json-pointer.js';
import type { JsonSchemaObject } from '../spec/records/task.js';

type Json = Record<string, unknown>;

/** Keywords that the whole schema takes over from the parts of `allOf`. */
const mergedKeys = ['type', 'properties', 'required', 'title', 'description', 'additionalProperties'];

/** The schema with `properties` at its top; its other keywords stay. */
export function parametersIn(schema: unknown): JsonSchemaObject {
  const whole = isObject(schema) ? merged(schema, schema, []) : {};
  return { ...whole, type: 'object', properties: propertiesOf(whole) } as JsonSchemaObject;
}

const propertiesOf = ({ properties }: Json): Json => (isObject(properties) ? properties : {});
const requiredOf = ({ required }: Json): unknown[] =>
  Array.isArray(required) ? (required as unknown[]) : [];

/** `open`: references that are being followed, so that a cycle ends. */
function merged(schema: Json, root: Json, open: readonly string[]): Json {
  const { $ref, ...own } = schema;
  if (typeof $ref === 'string') {
    const target = open.includes($ref) ? undefined : referredSchema(root, $ref);
    return isObject(target) ? joined([merged(target, root, [...open, $ref]), own]) : schema;
  }
  const partsOf = (key: string): Json[] => {
    const parts = schema[key];
    return Array.isArray(parts) && parts.every(isObject) ? parts.map((part) => merged(part, root, open)) : [];
  };
  const all = partsOf('allOf');
  if (all.length > 0 && all.every((part) => Object.keys(part).every((key) => mergedKeys.includes(key)))) {
    const { allOf: _, ...rest } = schema;
    return joined([...all, rest]);
  }
  const some = [...partsOf('anyOf'), ...partsOf('oneOf')];
  const isListed = some.some((part) => isObject(part.properties));
  return isListed ? joined([alternatives(some), schema]) : schema;
}

/** For `allOf`: all parts hold. */
function joined(parts: readonly Json[]): Json {
  const required = [...new Set(parts.flatMap(requiredOf))];
  return {
    ...(Object.assign({}, ...parts) as Json),
    properties: Object.assign({}, ...parts.map(propertiesOf)) as Json,
    ...(required.length === 0 ? {} : { required }),
  };
}

/** For `anyOf` and `oneOf`: a parameter is required if all parts require it, and may have its type in any part. */
function alternatives(parts: readonly Json[]): Json {
  const values = new Map<string, unknown[]>();
  for (const [name, value] of parts.flatMap((part) => Object.entries(propertiesOf(part)))) {
    const known = values.get(name) ?? [];
    if (!known.some((one) => isDeepStrictEqual(one, value))) values.set(name, [...known, value]);
  }
  const properties = [...values].map(([name, some]) => [name, some.length === 1 ? some[0] : { anyOf: some }]);
  const required = parts.map(requiredOf).reduce((all, names) => all.filter((name) => names.includes(name)));
  return { properties: Object.fromEntries(properties) as Json, required };
}
