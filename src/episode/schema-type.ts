// Writes the type that a JSON Schema describes in the short form of a signature. A server's schema may be anything, also no schema at all.
import { decodedPart, isObject, numberIn, referredSchema, writeJson } from '../base/json.js';

/** Names in signatures, by JSON Schema's names. */
export const shortTypes: ReadonlyMap<string, string> = new Map([
  ['string', 'str'],
  ['integer', 'int'],
  ['number', 'float'],
  ['boolean', 'bool'],
  ['array', 'list'],
  ['object', 'dict'],
]);

const maxDepth = 12;
/** Of a longer type only the name is written, because it would cost too many tokens. */
const maxCharacters = 600;

export class SchemaTypes {
  /** Types by reference. */
  readonly #known = new Map<string, string>();
  /** References that are being written. If one of them occurs again, there is a cycle, and only its name is written. */
  readonly #open = new Set<string>();

  /** `root`: schema in which the references are looked up. `leavesOutValues`: enumerations are written as their type. */
  constructor(
    private readonly root: unknown,
    private readonly options: { leavesOutValues?: boolean } = {},
  ) {}

  /** For example `int|null`, `"open"|"closed"` or `list[{id: int, note?: str}]`; empty if any value is allowed. */
  textOf(schema: unknown, depth = 0): string {
    if (!isObject(schema)) return '';
    const text = depth > maxDepth ? '' : this.#written(schema, depth + 1);
    const whole = schema.nullable === true && text !== '' ? union([text, 'null']) : text;
    return whole.length <= maxCharacters ? whole : named(schema);
  }

  #written(schema: Record<string, unknown>, depth: number): string {
    const { $ref, enum: values, anyOf, oneOf, allOf, type } = schema;
    if (typeof $ref === 'string') return this.#referred($ref, depth);
    if ('const' in schema) return writeJson(schema.const);
    if (Array.isArray(values) && values.length > 0 && !this.options.leavesOutValues)
      return union(values.map((value) => writeJson(value)));
    for (const some of [anyOf, oneOf])
      if (Array.isArray(some) && some.length > 0)
        return union(some.map((member) => this.textOf(member, depth)));
    if (Array.isArray(allOf)) {
      const parts = [...new Set(allOf.map((member) => this.textOf(member, depth)))].filter(Boolean);
      if (parts.length > 0) return parts.join('&');
    }
    if (Array.isArray(type)) return union(type.map((one) => this.#ofType(one, schema, depth)));
    return this.#ofType(type ?? inferredType(schema), schema, depth);
  }

  #ofType(type: unknown, schema: Record<string, unknown>, depth: number): string {
    const { properties, items, prefixItems } = schema;
    const members = isObject(properties) ? properties : {};
    if (type === 'object') return this.#ofObject(members, schema, depth);
    const tuple = [prefixItems, items].find((list) => Array.isArray(list)) as unknown[] | undefined;
    if (type === 'array') {
      const inner = (tuple ?? [items]).map((item) => this.textOf(item, depth));
      return inner.every((text) => text === '')
        ? 'list'
        : `list[${inner.map((text) => text || 'any').join(', ')}]`;
    }
    return typeof type === 'string' ? (shortTypes.get(type) ?? type) : '';
  }

  #ofObject(
    members: Record<string, unknown>,
    { required, additionalProperties }: Record<string, unknown>,
    depth: number,
  ): string {
    const needed = new Set(Array.isArray(required) ? required : []);
    const parts = Object.entries(members).map(([key, member]) => {
      const text = this.textOf(member, depth);
      return `${key}${needed.has(key) ? '' : '?'}${text === '' ? '' : `: ${text}`}`;
    });
    if (parts.length > 0) return `{${parts.join(', ')}}`;
    const value = this.textOf(additionalProperties, depth);
    return value === '' ? 'dict' : `dict[str, ${value}]`;
  }

  #referred(reference: string, depth: number): string {
    const name = decodedPart(reference.split('/').at(-1) ?? '').replace('#', '');
    if (this.#open.has(reference)) return name;
    const known = this.#known.get(reference);
    if (known !== undefined) return known;
    this.#open.add(reference);
    const found = referredSchema(this.root, reference);
    const text = found === undefined ? name : this.textOf(found, depth);
    this.#open.delete(reference);
    this.#known.set(reference, text);
    return text;
  }
}

/**
 * JSON Schema's names of the types that a value may have; empty if the schema says none. A whole number is an `integer`. `root`: schema in
 * which the references are looked up.
 */
export function jsonTypesOf(schema: unknown, root: unknown): ReadonlySet<string> {
  return typesIn(schema, root, { left: mostParts }) ?? new Set();
}

/** The values that the schema allows, including those of its alternatives. */
export function valuesOf(schema: unknown, root: unknown): unknown[] {
  const values: unknown[] = [];
  for (const part of partsOf(schema, root)) {
    if ('const' in part) values.push(part['const']);
    if (Array.isArray(part['enum'])) values.push(...(part['enum'] as unknown[]));
  }
  return values;
}

/** The parameters of a tool: `readTools` has put those behind references and in parts to the top of its schema. */
export function propertiesOf(schema: unknown): Record<string, unknown> {
  return isObject(schema) && isObject(schema['properties']) ? schema['properties'] : {};
}

const mostParts = 64;

/** The schema, the schemas to which it refers, and the schemas of which it consists. */
function partsOf(schema: unknown, root: unknown): Record<string, unknown>[] {
  const parts = new Set<Record<string, unknown>>();
  const add = (part: unknown): void => {
    if (!isObject(part) || parts.has(part) || parts.size >= mostParts) return;
    parts.add(part);
    for (const group of [part['allOf'], part['anyOf'], part['oneOf']])
      if (Array.isArray(group)) for (const member of group) add(member);
    if (typeof part['$ref'] === 'string') add(referredSchema(root, part['$ref']));
  };
  add(schema);
  return [...parts];
}

/** Null if any type is allowed. `budget`: number of parts that may still be read; it ends a cycle. */
function typesIn(schema: unknown, root: unknown, budget: { left: number }): Set<string> | null {
  if (!isObject(schema) || budget.left-- <= 0) return null;
  const inner = (part: unknown): Set<string> | null => typesIn(part, root, budget);
  const { $ref, enum: values, type } = schema;
  const said = [type ?? inferredType(schema)].flat().filter((one) => typeof one === 'string');
  const limits = [said.length > 0 ? new Set(said) : null];
  if (typeof $ref === 'string') limits.push(inner(referredSchema(root, $ref)));
  if ('const' in schema) limits.push(new Set([typeOf(schema['const'])]));
  if (Array.isArray(values) && values.length > 0) limits.push(new Set(values.map(typeOf)));
  for (const some of [schema['anyOf'], schema['oneOf']]) {
    const members = Array.isArray(some) ? some.map(inner) : [null];
    limits.push(members.reduce((all, one) => all && one && new Set([...all, ...one]), new Set<string>()));
  }
  if (Array.isArray(schema['allOf'])) limits.push(...schema['allOf'].map(inner));
  const types = limits.reduce(common, null);
  return types && schema['nullable'] === true ? types.add('null') : types;
}

/** The types that both allow; if there are none, the schema contradicts itself, and its first part counts. */
function common(some: Set<string> | null, others: Set<string> | null): Set<string> | null {
  if (!some || !others) return some ?? others;
  const widened = (types: Set<string>): Set<string> =>
    types.has('number') ? new Set([...types, 'integer']) : types;
  const both = [...widened(some)].filter((type) => widened(others).has(type));
  if (both.length === 0) return some;
  return new Set(both.includes('number') ? both.filter((type) => type !== 'integer') : both);
}

/** The type of a schema that has none, from what it says of members. */
function inferredType({ properties, items, prefixItems }: Record<string, unknown>): string | undefined {
  if (isObject(properties) && Object.keys(properties).length > 0) return 'object';
  return isObject(items) || [items, prefixItems].some((list) => Array.isArray(list)) ? 'array' : undefined;
}

function typeOf(value: unknown): string {
  const number = numberIn(value);
  if (number !== null) return Number.isInteger(number) ? 'integer' : 'number';
  if (value === null) return 'null';
  return Array.isArray(value) ? 'array' : typeof value;
}

/** Any value is allowed where one part allows any. */
function union(parts: readonly string[]): string {
  return parts.includes('') ? '' : [...new Set(parts.flatMap(membersOf))].join('|');
}

/** Removes duplicates, also in nested unions: `int|null` and `null` become `int|null`. */
function membersOf(text: string): string[] {
  return /^[\w|]+$/.test(text) ? text.split('|') : [text];
}

function named({ type, properties, items }: Record<string, unknown>): string {
  if (typeof type === 'string') return shortTypes.get(type) ?? type;
  if (isObject(properties)) return 'dict';
  return items === undefined ? '' : 'list';
}
