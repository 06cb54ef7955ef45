// Generates the lists of fields in docs/records.md. The list after `<!-- generated: KIND -->` comes from that kind's schema; the rest of
// the page is written by hand.
import { z } from 'zod';
import { nested, oneOf, valueText, type Node } from './schema-text.js';
import { recordSchemas, schemaVersions, type RecordKind } from '../../../src/spec/records/record-kinds.js';

const block = /(<!-- generated: (.+) -->\n\n)(?:.+\n)*/g;
const commonParts = 'common parts';

/**
 * The page with the current lists. Throws if a kind of record has no block, if a block has no kind of record, or if the page does not name
 * a kind's newest version.
 */
export function withRecordFields(page: string): string {
  const lists = recordFields(page);
  const written = page.replace(block, (_, mark: string, name: string) => {
    const found = lists.get(name);
    if (found === undefined)
      throw new Error(
        `docs/records.md has a block "${name}" that is not a kind of record, or has this block twice`,
      );
    lists.delete(name);
    return mark + found;
  });
  if (lists.size > 0) throw new Error(`docs/records.md has no block for ${[...lists.keys()].join(', ')}`);
  return written;
}

function recordFields(page: string): Map<string, string> {
  const lists = new Map<string, string>();
  const parts: Record<string, Node> = {};
  for (const kind of Object.keys(recordSchemas) as RecordKind[]) {
    const { $defs = {}, ...root } = z.toJSONSchema(recordSchemas[kind], {
      io: 'input',
      unrepresentable: 'any',
    }) as Node;
    const schema = `longhaul.${kind}/${schemaVersions[kind]}`;
    if (!page.includes(`\`${schema}\``)) throw new Error(`docs/records.md does not name ${schema}`);
    lists.set(kind, fieldList(root.oneOf === undefined ? fields(root) : fieldsOfAny(root.oneOf)));
    for (const [id, part] of Object.entries($defs)) if (!Object.hasOwn(recordSchemas, id)) parts[id] = part;
  }
  const rank = ({ properties, description = '' }: Node) => (properties ? 2 : description === '' ? 0 : 1);
  const sorted = Object.entries(parts).sort(([, a], [, b]) => rank(a) - rank(b));
  const properties = Object.fromEntries(sorted);
  lists.set(commonParts, fieldList(fields({ properties, required: Object.keys(parts) })));
  return lists;
}

interface Field {
  name: string;
  /** The shape of the record (its kind or version) that has this field; absent if all shapes have it. */
  only?: string;
  value: string;
  meaning: string;
}

function fields({ properties = {}, required = [] }: Node, prefix = ''): Field[] {
  return Object.entries(properties).flatMap(([key, node]) => {
    const name = `${prefix}${key}${required.includes(key) ? '' : '?'}`;
    const meaning = node.description ?? '';
    const within = nested(node);
    const below = within ? fields(within.node, `${prefix}${key}${within.suffix}.`) : [];
    const isOnlyAPlace = within !== undefined && meaning === '' && required.includes(key);
    return key === 'schema' || isOnlyAPlace ? below : [{ name, value: valueText(node), meaning }, ...below];
  });
}

/** Fields of a record with several shapes: first the fields of the first shape, then the additional fields of the others. */
function fieldsOfAny(shapes: Node[]): Field[] {
  const all = shapes.map((shape) => {
    const { kind, schema } = shape.properties ?? {};
    const only = kind
      ? String(kind.const)
      : `version ${String(schema?.const ?? schema?.enum?.at(-1)).split('/')[1]}`;
    return fields(shape).map((field) => ({ ...field, only }));
  });
  const names = new Set(all.flat().map(({ name }) => name));
  return [...names].map((name) => {
    const same = all.flat().filter((field) => field.name === name);
    const [first] = same as [Field];
    const { only: _, ...shared } = first;
    if (same.length < shapes.length) return first;
    const values = [...new Set(same.map(({ value }) => value))];
    return values.every((value) => value.startsWith('`"')) ? { ...shared, value: oneOf(values) } : shared;
  });
}

/** Neighbouring fields without a meaning share a line; if they also have the same value, it is written once. */
function fieldList(all: Field[]): string {
  const lines: { names: string; value: string; meaning: string }[] = [];
  for (const { name, only, value: type, meaning } of all) {
    const value = only === undefined ? type : `${only}: ${type}`;
    const last = lines.at(-1);
    if (last && last.meaning === '' && meaning === '') {
      last.names += last.value === value ? `, \`${name}\`` : ` (${last.value}); \`${name}\``;
      last.value = value;
    } else lines.push({ names: `\`${name}\``, value, meaning });
  }
  return lines
    .map(({ names, value, meaning }) => `- ${names} (${value})${meaning === '' ? '' : `: ${meaning}`}\n`)
    .join('');
}
