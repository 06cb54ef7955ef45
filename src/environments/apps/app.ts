// What a built-in app is: tables, tools and task templates. The shared code (world, grading, tasks) knows no app by name.
import type { ToolCall, ToolSpec } from '../../spec/records/task.js';
import type { Connection } from './connection.js';
import type { Draw } from './random.js';
import type { Table, WorldRows } from './table.js';

export interface ToolContext {
  db: Connection;
  /** The account that the agent works as (LOGGED_IN_USER). */
  user: string;
  /** The frozen clock, `YYYY-MM-DD` (CURRENT_DATE). */
  today: string;
  /** A fresh opaque id, a function of the world and of how many rows the table has. */
  newId(prefix: string, table: string): string;
}

export type ToolArguments = Readonly<Record<string, string | number | undefined>>;

export interface ToolHandler {
  /** Read-only tools need no transaction. */
  writes: boolean;
  /** Arguments are checked before. Throws `ToolError` for the model's mistakes. */
  run(context: ToolContext, args: ToolArguments): object;
}

/** The model's mistake, in words for the model. */
export class ToolError extends Error {
  constructor(
    readonly status: 403 | 404 | 409 | 422,
    message: string,
  ) {
    super(message);
    this.name = 'ToolError';
  }
}

/** Ways in which a teacher may get a task wrong. Ids and values are valid, so that errors stay plausible. */
export interface Mistakes {
  /** Tools it may take instead of the acting one. */
  tools: readonly string[];
  /** Argument of the acting call that it may fill with one of these. */
  argument?: { name: string; values: readonly string[] };
  /** Ids of other rows that the search returns. */
  rows?: readonly string[];
  /** What the other branch of a condition would do. */
  branch?: ToolCall;
}

/** A task's world, wording and solution. */
export interface Scenario {
  rows: WorldRows;
  /** Fills the paraphrases' `{name}` places. */
  values: Readonly<Record<string, string | number>>;
  /** The combination that must not be in both splits. Empty: the template has too few, and the key's number splits. */
  entities: readonly (string | number)[];
  /** Solves the task; the last call is the one that acts. */
  oracle: readonly ToolCall[];
  mistakes: Mistakes;
}

export interface TaskTemplate {
  name: string;
  difficulty: 1 | 2;
  paraphrases: readonly string[];
  /** A pure function of the draws. */
  build(draw: Draw): Scenario;
}

export interface App {
  name: string;
  /** Parents before children. */
  tables: readonly Table[];
  tools: readonly ToolSpec[];
  handlers: ReadonlyMap<string, ToolHandler>;
  templates: readonly TaskTemplate[];
  /** CURRENT_DATE, LOGGED_IN_USER, LOGGED_IN_NAME of every task. */
  variables: Readonly<Record<'CURRENT_DATE' | 'LOGGED_IN_USER' | 'LOGGED_IN_NAME', string>>;
  /** A plausible value for each argument name that any tool takes. */
  samples: Readonly<Record<string, (draw: Draw) => string | number>>;
  /** Arguments that drills copy besides `id`: their values do not look alike. */
  drilled: readonly string[];
}
