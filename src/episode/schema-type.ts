// Writes the type that a JSON Schema describes in the short form of a signature. A server's schema may be anything, also no schema at all.
import { isObject, writeJson } from '../base/json.js';

const shortTypes = new Map([
  ['string', 'str'],
  ['integer', 'int'],
  ['number', 'float'],
  ['boolean', 'bool'],
  ['array', 'list'],
  ['object', 'dict'],
]);

const maxDepth = 12;
/** A longer type is named only: it would cost more tokens than it is worth. */
const maxCharacters = 600;

export class SchemaTypes {
  /** Types by reference. */
  readonly #known = new Map<string, string>();
  /** References that are being written: one of them again is a cycle, which ends with its name. */
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
    return this.#ofType(type, schema, depth);
  }

  #ofType(type: unknown, schema: Record<string, unknown>, depth: number): string {
    const { properties, items, prefixItems } = schema;
    const members = isObject(properties) ? properties : {};
    if (type === 'object' || (type === undefined && Object.keys(members).length > 0))
      return this.#ofObject(members, schema, depth);
    const tuple = [prefixItems, items].find((list) => Array.isArray(list)) as unknown[] | undefined;
    if (type === 'array' || (type === undefined && (tuple || isObject(items)))) {
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
    const name = decoded(reference.split('/').at(-1) ?? '').replace('#', '');
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

/** The schema in `root` at a JSON pointer such as `#/$defs/Address`; undefined if there is none. */
export function referredSchema(root: unknown, reference: string): unknown {
  if (!reference.startsWith('#')) return undefined;
  let place = root;
  for (const part of reference.slice(1).split('/').slice(1)) {
    const key = decoded(part).replaceAll('~1', '/').replaceAll('~0', '~');
    if (Array.isArray(place)) place = place[Number(key)] as unknown;
    else if (isObject(place) && Object.hasOwn(place, key)) place = place[key];
    else return undefined;
  }
  return place;
}

/** A server may write a `%` that encodes nothing. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Any value is allowed where one part allows any. */
function union(parts: readonly string[]): string {
  return parts.includes('') ? '' : [...new Set(parts.flatMap(membersOf))].join('|');
}

/** Of a union in a union, too: `int|null` and `null` are `int|null`. */
function membersOf(text: string): string[] {
  return /^[\w|]+$/.test(text) ? text.split('|') : [text];
}

function named({ type, properties, items }: Record<string, unknown>): string {
  if (typeof type === 'string') return shortTypes.get(type) ?? type;
  if (isObject(properties)) return 'dict';
  return items === undefined ? '' : 'list';
}
