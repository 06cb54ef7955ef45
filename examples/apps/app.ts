// The parts of an example app: tables, tools and task templates. Code that all apps share (world, grading, tasks) mentions no app by name.
import type { ToolCall, ToolSpec } from './task-row.js';
import type { Connection } from './connection.js';
import type { Draw } from './random.js';
import type { Table, WorldRows } from './table.js';

/** The size of worlds: `wide` has pages, near-duplicates and long outputs as real services do. */
export type Profile = 'default' | 'wide';

export interface ToolContext {
  db: Connection;
  profile: Profile;
  /** The account as which the agent works (LOGGED_IN_USER). */
  user: string;
  /** The frozen clock, `YYYY-MM-DD` (CURRENT_DATE). */
  today: string;
  /** A new opaque id. It depends only on the world and on the table's number of rows. */
  newId(prefix: string, table: string): string;
}

/** What a tool of an app answers. */
export interface TextResult {
  text: string;
  isError: boolean;
}

export type ToolArguments = Readonly<Record<string, string | number | undefined>>;

export interface ToolHandler {
  /** False for read-only tools, which need no transaction. */
  writes: boolean;
  /** `args` are checked already. Throws `ToolError` for the model's mistakes. */
  run(context: ToolContext, args: ToolArguments): object;
}

/** A mistake of the model; the message is for the model. */
export class ToolError extends Error {
  constructor(
    readonly status: 403 | 404 | 409 | 422,
    message: string,
  ) {
    super(message);
    this.name = 'ToolError';
  }
}

/** How a teacher may get a task wrong. All ids and values exist, so that the mistakes look plausible. */
export interface Mistakes {
  /** Tools that the teacher may call instead of the right one, in the last call. */
  tools: readonly string[];
  /** An argument of the last call, and wrong values for it. */
  argument?: { name: string; values: readonly string[] };
  /** Ids of other rows that the search returns and that the teacher may mistake for the right row. */
  rows?: readonly string[];
  /** The call that would be right if the task's condition had the other outcome. */
  branch?: ToolCall;
}

/** What the final answer must say. The prompt contains neither this number nor this name. */
export interface Question {
  value: string | number;
  /**
   * Everything else of the same kind, such as all other users: an answer that names one of them is wrong. For a number, every other number
   * that is not in the prompt is wrong, so this list only holds plausible mistakes.
   */
  others: readonly (string | number)[];
}

/** The world, the values of the wording, and the solution of a task. */
export interface Scenario {
  rows: WorldRows;
  /** Values for the places `{name}` in the paraphrases. */
  values: Readonly<Record<string, string | number>>;
  /**
   * The combination that must not occur in both splits. Empty if the template has too few combinations: then the key's number decides the
   * split.
   */
  entities: readonly (string | number)[];
  /** The calls that solve the task; the last one makes the change, or shows what was asked. */
  oracle: readonly ToolCall[];
  mistakes: Mistakes;
  /** Absent if only the database counts. */
  question?: Question;
}

/** What a scenario may depend on besides its draws. */
export interface SceneOptions {
  profile: Profile;
  /** The id that a tool will give to a new row of `table`, which has the ids `taken` by then. */
  nextId(prefix: string, table: string, taken: readonly string[]): string;
}

export interface TaskTemplate {
  name: string;
  /** 1: one call. 2: two to four calls. 3: five or more, each of which needs a result of those before. */
  difficulty: 1 | 2 | 3;
  paraphrases: readonly string[];
  /** Must be a pure function of its arguments. */
  build(draw: Draw, options: SceneOptions): Scenario;
}

/** Probability that a teacher's decision of each kind is right. */
export interface TeacherSkill {
  tool: number;
  argument: number;
  row: number;
  branch: number;
  flow: number;
  answer: number;
}

export interface App {
  name: string;
  /** Parent tables come before their children. */
  tables: readonly Table[];
  tools: readonly ToolSpec[];
  handlers: ReadonlyMap<string, ToolHandler>;
  templates: readonly TaskTemplate[];
  /** The values of CURRENT_DATE, LOGGED_IN_USER and LOGGED_IN_NAME, the same in every task. */
  variables: Readonly<Record<'CURRENT_DATE' | 'LOGGED_IN_USER' | 'LOGGED_IN_NAME', string>>;
  /** For each argument name of any tool, a function that draws a plausible value. */
  samples: Readonly<Record<string, (draw: Draw) => string | number>>;
  /** Arguments that drills copy in addition to `id`; their values are easy to tell apart. */
  drilled: readonly string[];
  /** Absent: the usual skill, with which about half of the demonstrations are right. */
  teacherSkill?: TeacherSkill;
}
