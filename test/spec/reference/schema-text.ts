// Parts of the Markdown lists that docs/run-spec.md and docs/records.md show for a schema.

/** The parts of a JSON Schema node that the lists use. */
export interface Node {
  $ref?: string;
  $defs?: Record<string, Node>;
  type?: string | string[];
  description?: string;
  default?: unknown;
  const?: unknown;
  enum?: unknown[];
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  multipleOf?: number;
  format?: string;
  items?: Node | false;
  prefixItems?: Node[];
  oneOf?: Node[];
  anyOf?: Node[];
  properties?: Record<string, Node>;
  additionalProperties?: Node | false;
  required?: string[];
}

/** The accepted values, in words. */
export function valueText(node: Node): string {
  if (node.$ref !== undefined) return nameOf(node.$ref);
  const options = node.oneOf ?? node.anyOf;
  if (options !== undefined) return oneOf(options.map(valueText));
  if (node.const !== undefined) return `\`${JSON.stringify(node.const)}\``;
  if (node.enum !== undefined) return `\`${node.enum.map((value) => JSON.stringify(value)).join('|')}\``;
  if (node.prefixItems !== undefined) return tupleText(node.prefixItems.map(valueText));
  if (Array.isArray(node.type)) return node.type.map((type) => valueText({ ...node, type })).join(' or ');
  switch (node.type) {
    case 'array':
      return node.items && (node.items.properties === undefined || !isDescribed(node.items))
        ? `list of ${valueText(node.items)}`
        : 'list';
    case 'object':
      if (node.properties !== undefined && !isDescribed(node)) return `\`${shapeText(node)}\``;
      return node.additionalProperties ? `mapping of ${valueText(node.additionalProperties)}` : 'mapping';
    case 'boolean':
      return 'bool';
    case 'string':
      return node.format === 'uri' ? 'URL' : 'text';
    case 'null':
      return 'null';
    case undefined:
      return 'mapping';
    default:
      return (
        [node.type === 'integer' ? 'int' : '', bounds(node)].filter((part) => part !== '').join(' ') ||
        'number'
      );
  }
}

/** Joins options: literals as `"a"|"b"`, others as `a, b or c`. */
export function oneOf(options: string[]): string {
  if (options.every((option) => /^`["\d]/.test(option))) return options.join('|').replaceAll('`|`', '|');
  const [last = ''] = options.slice(-1);
  return options.length < 2 ? last : `${options.slice(0, -1).join(', ')} or ${last}`;
}

/** The members of a mapping in one line, neighbours of the same type together: `{run, name: text; step: count}`. */
function shapeText({ properties = {}, required = [] }: Node): string {
  const groups: { names: string; value: string }[] = [];
  for (const [key, member] of Object.entries(properties)) {
    const name = required.includes(key) ? key : `${key}?`;
    const value = valueText(member).replaceAll('`', '');
    const last = groups.at(-1);
    if (last?.value === value) last.names += `, ${name}`;
    else groups.push({ names: name, value });
  }
  return `{${groups.map(({ names, value }) => `${names}: ${value}`).join('; ')}}`;
}

function tupleText(items: string[]): string {
  return items.every((item) => item === items[0])
    ? `list of ${items.length}: ${items[0]}`
    : `\`[${items.join(', ')}]\``;
}

/** True if a member has a description; then each member has its own row. */
function isDescribed({ properties = {} }: Node): boolean {
  return Object.values(properties).some(
    (member) => member.description !== undefined || nested(member) !== undefined,
  );
}

/** The mapping whose members have their own rows: the value itself, its items, or its only option other than null. */
export function nested(node: Node): { suffix: string; node: Node } | undefined {
  if (node.properties !== undefined) return isDescribed(node) ? { suffix: '', node } : undefined;
  if (node.items) {
    const item = nested(node.items);
    return item && { suffix: `[]${item.suffix}`, node: item.node };
  }
  const [option, ...others] = (node.anyOf ?? []).filter(({ type }) => type !== 'null');
  return option !== undefined && others.length === 0 ? nested(option) : undefined;
}

function nameOf(ref: string): string {
  return ref.slice('#/$defs/'.length);
}

/** The bounds as text: `≥1`, or an interval such as `(0,1]`. */
function bounds(node: Node): string {
  const { exclusiveMinimum, exclusiveMaximum, multipleOf } = node;
  // Leave out the bounds of exactly representable numbers: they tell a reader nothing.
  const minimum = isSaid(node.minimum) ? node.minimum : undefined;
  const maximum = isSaid(node.maximum) ? node.maximum : undefined;
  const low = exclusiveMinimum ?? minimum;
  const high = exclusiveMaximum ?? maximum;
  const multiple = multipleOf === undefined ? '' : `, multiple of ${multipleOf}`;
  if (low !== undefined && high !== undefined)
    return `${exclusiveMinimum === undefined ? '[' : '('}${low},${high}${exclusiveMaximum === undefined ? ']' : ')'}${multiple}`;
  if (low !== undefined) return `${exclusiveMinimum === undefined ? '≥' : '>'}${low}${multiple}`;
  return high === undefined ? multiple : `${exclusiveMaximum === undefined ? '≤' : '<'}${high}${multiple}`;
}

const isSaid = (bound: number | undefined): boolean =>
  bound !== undefined && Math.abs(bound) < Number.MAX_SAFE_INTEGER;
