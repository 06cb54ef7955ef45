// Compares two databases of one app, row by row. Opaque ids that tools created are compared by the contents of their rows.
import type { App } from './app.js';
import type { Cell, Row, Table, WorldRows } from './table.js';
import { parseRows } from './connection.js';

type Dump = ReadonlyMap<string, string>;

const maxLines = 12;

/** True if all tables, except the ignored ones, contain the same rows. */
export function sameContent(app: App, initial: WorldRows, actual: Dump, expected: Dump): boolean {
  const tables = gradedTables(app);
  if (tables.every(({ name }) => actual.get(name) === expected.get(name))) return true;
  const [left, right] = [canonicalRows(app, initial, actual), canonicalRows(app, initial, expected)];
  return tables.every(({ name }) => JSON.stringify(left.get(name)) === JSON.stringify(right.get(name)));
}

/** The rows that differ, one per line: `issues ISS-7Q2K: state is "open", should be "closed"`. */
export function describeDifference(app: App, initial: WorldRows, actual: Dump, expected: Dump): string {
  const [left, right] = [canonicalRows(app, initial, actual), canonicalRows(app, initial, expected)];
  const lines: string[] = [];
  for (const table of gradedTables(app)) {
    const found = byKey(table, left.get(table.name) ?? []);
    const wanted = byKey(table, right.get(table.name) ?? []);
    for (const key of new Set([...found.keys(), ...wanted.keys()])) {
      const line = rowDifference(table, found.get(key), wanted.get(key));
      if (line) lines.push(`${table.name} ${line}`);
    }
  }
  const more = lines.length - maxLines;
  return [...lines.slice(0, maxLines), ...(more > 0 ? [`and ${more} more`] : [])].join('; ');
}

function gradedTables(app: App): readonly Table[] {
  return app.tables.filter((table) => !table.ignored);
}

function rowDifference(table: Table, found: Row | undefined, wanted: Row | undefined): string | undefined {
  const row = found ?? wanted;
  if (!row) return undefined;
  const key = row.slice(0, table.key).join(' ');
  if (!found) return `${key}: missing ${JSON.stringify(wanted)}`;
  if (!wanted) return `${key}: unexpected ${JSON.stringify(found)}`;
  const changes = Object.keys(table.columns).flatMap((column, i) =>
    found[i] === wanted[i]
      ? []
      : [`${column} is ${JSON.stringify(found[i])}, should be ${JSON.stringify(wanted[i])}`],
  );
  return changes.length > 0 ? `${key}: ${changes.join(', ')}` : undefined;
}

function byKey(table: Table, rows: readonly Row[]): Map<string, Row> {
  return new Map(rows.map((row) => [JSON.stringify(row.slice(0, table.key)), row]));
}

// Renames ids that tools created to `new 1`, `new 2`, …, ordered by the contents of the rows that mention them.
function canonicalRows(app: App, initial: WorldRows, dump: Dump): Map<string, Row[]> {
  const tables = gradedTables(app);
  const rows = new Map(tables.map(({ name }) => [name, parseRows(dump.get(name) ?? '[]')]));
  const made = madeIds(tables, initial, rows);
  if (made.length === 0) return rows;
  const content = (id: string) =>
    JSON.stringify(
      [...rows].map(([name, list]) => [
        name,
        ...list.filter((row) => row.includes(id)).map(rename({ [id]: 'new' })),
      ]),
    );
  const order = made.map((id) => ({ id, says: content(id) })).sort((a, b) => (a.says < b.says ? -1 : 1));
  const names = Object.fromEntries(order.map(({ id }, i) => [id, `new ${i + 1}`]));
  for (const [name, list] of rows) {
    rows.set(
      name,
      list.map(rename(names)).sort((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1)),
    );
  }
  return rows;
}

function madeIds(tables: readonly Table[], initial: WorldRows, rows: Map<string, Row[]>): string[] {
  return tables
    .filter((table) => Object.hasOwn(table.columns, 'id'))
    .flatMap(({ name }) => {
      const known = new Set((initial[name] ?? []).map((row) => row[0]));
      return (rows.get(name) ?? []).flatMap(([id]) => (typeof id === 'string' && !known.has(id) ? [id] : []));
    });
}

function rename(names: Readonly<Record<string, string>>): (row: Row) => Row {
  return (row) =>
    row.map((cell): Cell =>
      typeof cell === 'string' && Object.hasOwn(names, cell) ? (names[cell] ?? cell) : cell,
    );
}
