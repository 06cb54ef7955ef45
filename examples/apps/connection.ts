// In-memory SQLite connections, kept for the app's next world. A world is one open transaction on top of the reference rows, so a world
// ends with a rollback, and statements stay prepared. Measured: 0.1 ms to load and dump a world; opening a serialized image and preparing
// the statements again takes 0.2 ms.
import { createRequire } from 'node:module';
import type BetterSqlite3 from 'better-sqlite3';
import type { Cell, Row, Table, WorldRows } from './table.js';

/** The part of an app that a connection needs. */
interface Schema {
  tables: readonly Table[];
}

type RowObject = Readonly<Record<string, Cell>>;

/** Maximum number of idle connections per app; each holds about 0.2 MB. */
const maxIdle = 512;
const idle = new Map<Schema, Connection[]>();

export class Connection {
  private readonly database: BetterSqlite3.Database;
  private readonly statements = new Map<string, BetterSqlite3.Statement>();
  private readonly inserts = new Map<string, BetterSqlite3.Statement>();
  private readonly dumps: { table: Table; statement: BetterSqlite3.Statement }[];

  constructor(app: Schema) {
    this.database = openMemory();
    this.database.exec(app.tables.map(definition).join('\n'));
    for (const table of app.tables) {
      const places = Object.keys(table.columns).map(() => '?');
      const insert = this.database.prepare(`INSERT INTO ${table.name} VALUES (${places.join(',')})`);
      for (const row of table.reference ?? []) insert.run(row);
      this.inserts.set(table.name, insert);
    }
    this.dumps = app.tables.map((table) => ({
      table,
      statement: this.database.prepare(dumpQuery(table)).pluck(),
    }));
  }

  /** Starts a world with the reference rows and `rows`. */
  begin(rows: WorldRows): void {
    this.statement('BEGIN').run();
    for (const [table, tableRows] of Object.entries(rows)) {
      const insert = this.inserts.get(table);
      if (!insert) throw new RangeError(`no table ${table}`);
      for (const row of tableRows) insert.run(row);
    }
  }

  /** Ends the world; the reference rows remain. */
  end(): void {
    this.statement('ROLLBACK').run();
  }

  /** Runs a change completely or not at all. */
  atomically<T>(change: () => T): T {
    this.statement('SAVEPOINT change').run();
    try {
      const result = change();
      this.statement('RELEASE change').run();
      return result;
    } catch (error) {
      this.statement('ROLLBACK TO change').run();
      this.statement('RELEASE change').run();
      throw error;
    }
  }

  get(sql: string, ...values: Cell[]): RowObject | undefined {
    return this.statement(sql).get(...values) as RowObject | undefined;
  }

  all(sql: string, ...values: Cell[]): RowObject[] {
    return this.statement(sql).all(...values) as RowObject[];
  }

  run(sql: string, ...values: Cell[]): void {
    this.statement(sql).run(...values);
  }

  /** The rows of each table as JSON text, in key order, by table name. */
  dump(): ReadonlyMap<string, string> {
    return new Map(this.dumps.map(({ table, statement }) => [table.name, statement.get() as string]));
  }

  close(): void {
    this.database.close();
  }

  private statement(sql: string): BetterSqlite3.Statement {
    let statement = this.statements.get(sql);
    if (!statement) {
      statement = this.database.prepare(sql);
      this.statements.set(sql, statement);
    }
    return statement;
  }
}

/** Takes an idle connection, or opens one. */
export function takeConnection(app: Schema): Connection {
  return idle.get(app)?.pop() ?? new Connection(app);
}

/** Returns a connection for later use; call after `end`. */
export function returnConnection(app: Schema, connection: Connection): void {
  const connections = idle.get(app) ?? [];
  idle.set(app, connections);
  if (connections.length < maxIdle) connections.push(connection);
  else connection.close();
}

/** The rows in a table's JSON text. */
export function parseRows(json: string): Row[] {
  return JSON.parse(json) as Row[];
}

// Loaded for the first world only, because reading a spec or a task file needs no native addon.
function openMemory(): BetterSqlite3.Database {
  const require = createRequire(import.meta.url);
  const Database = require('better-sqlite3') as typeof BetterSqlite3;
  const database = new Database(':memory:');
  database.pragma('foreign_keys = ON');
  return database;
}

function definition(table: Table): string {
  const names = Object.keys(table.columns);
  const columns = Object.entries(table.columns).map(([name, type]) => `${name} ${type}`);
  const key = names.slice(0, table.key).join(', ');
  return `CREATE TABLE ${table.name} (${columns.join(', ')}, PRIMARY KEY (${key})) STRICT, WITHOUT ROWID;`;
}

function dumpQuery(table: Table): string {
  const columns = Object.keys(table.columns);
  const key = columns.slice(0, table.key).join(', ');
  // The subquery needs no sort: its order is that of the primary key.
  const rows = `(SELECT * FROM ${table.name} ORDER BY ${key})`;
  return `SELECT json_group_array(json_array(${columns.join(', ')})) FROM ${rows}`;
}
