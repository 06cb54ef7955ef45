// The parts of a world: the tables of an app, and their rows.

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
  /** A side table: kept like the others, but ignored by grading. */
  ignored?: true;
}

/** Rows of the tables that differ from world to world, in column order. */
export type WorldRows = Readonly<Record<string, readonly Row[]>>;
