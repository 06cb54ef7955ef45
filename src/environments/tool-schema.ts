// The parameters of a tool from its JSON Schema, which may have them behind a reference or in parts: zod-to-json-schema and pydantic write so.
import { isDeepStrictEqual } from 'node:util';
import { isObject } from '../base/json.js';
import { referredSchema } from '../base/json-pointer.js';
import type { JsonSchemaObject } from '../spec/records/task.js';

type Json = Record<string, unknown>;

/** What the parts of `allOf` may say for the whole to say it. */
const mergedKeys = ['type', 'properties', 'required', 'title', 'description', 'additionalProperties'];

/** The schema with `properties` at its top. What the schema says besides stays. */
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

/** All parts hold. */
function joined(parts: readonly Json[]): Json {
  const required = [...new Set(parts.flatMap(requiredOf))];
  return {
    ...(Object.assign({}, ...parts) as Json),
    properties: Object.assign({}, ...parts.map(propertiesOf)) as Json,
    ...(required.length === 0 ? {} : { required }),
  };
}

/** One of the parts holds: a parameter is required if it is in all, and may be what it is in any. */
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
