// The tools of an environment. A tool's parameters are read from its JSON Schema: they may be behind a reference or in parts, as zod-to-json-schema and pydantic write them.
import { isObject, referredSchema } from '../base/json.js';
import type { JsonSchemaObject, ToolSpec } from '../spec/records/task.js';
import { isDeepStrictEqual } from 'node:util';

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

/** Sorted by name, because a server may list tools in any order. */
export function inOrder(tools: readonly ToolSpec[]): ToolSpec[] {
  return [...tools].sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
}

/**
 * The tool list of each environment as prompts show it: sorted, because servers may list tools in any order and all nodes must show the same
 * prompt; and the same object as long as nothing changes, because prompts are cached by the identity of their list.
 */
export class KnownTools {
  readonly #newest = new Map<string, readonly ToolSpec[]>();

  /** The environment's earlier list if it has the same tools; else the new list, sorted. */
  listOf(envKey: string, tools: readonly ToolSpec[]): readonly ToolSpec[] {
    const newest = this.#newest.get(envKey);
    const ordered = inOrder(tools);
    if (newest && isDeepStrictEqual(newest, ordered)) return newest;
    this.#newest.set(envKey, ordered);
    return ordered;
  }
}
