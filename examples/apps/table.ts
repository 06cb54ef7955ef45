// A world's data: the tables of an app, and their rows.

export type Cell = string | number | null;
export type Row = readonly Cell[];

export interface Table {
  name: string;
  /** Definition of each column, key columns first. */
  columns: Readonly<Record<string, string>>;
  /** Number of leading columns that form the primary key. */
  key: number;
  /** Rows that are the same in every world; no tool writes to such a table. */
  reference?: readonly Row[];
  /** Set for a side table, which grading ignores. */
  ignored?: true;
}

/** The rows that a world adds to its tables, by table name; values in column order. */
export type WorldRows = Readonly<Record<string, readonly Row[]>>;
