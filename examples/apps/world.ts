// The world of one episode in an example app. Invariants: a world is a function of its task key; a call makes all of its changes or none; a
// task is solved when all tables, except the ignored ones, equal those of a world after the oracle's calls, and the final answer says what
// was asked.
import type { ToolCall } from './task-row.js';
import type { App, Scenario, TextResult, ToolContext } from './app.js';
import { ToolError } from './app.js';
import { type Connection, returnConnection, takeConnection } from './connection.js';
import { describeDifference, sameContent } from './difference.js';
import { answerProblem } from './final-answer.js';
import { newId } from './opaque-ids.js';
import { scenarioOf, type TaskAddress, taskFromKey } from './task-key.js';
import { argumentProblem } from './tool.js';

interface WorldGrade {
  value: 0 | 1;
  /** The rows that differ and what the answer lacks, for people; never shown to the model. */
  explanation: string;
}

/** Opens a task's world. @throws RangeError if no example app or template has this key. */
export function openWorld(taskKey: string): World {
  const { address, scenario } = scenarioOf(taskKey);
  return new World(address, scenario);
}

export class World {
  readonly app: App;
  readonly taskKey: string;
  private readonly scenario: Scenario;
  private readonly context: ToolContext;
  private connection: Connection | undefined;

  constructor(address: TaskAddress, scenario: Scenario) {
    this.app = address.app;
    this.taskKey = address.key;
    this.scenario = scenario;
    const db = takeConnection(this.app);
    this.connection = db;
    db.begin(scenario.rows);
    this.context = {
      db,
      profile: address.profile,
      user: this.app.variables.LOGGED_IN_USER,
      today: this.app.variables.CURRENT_DATE,
      newId: (prefix, table) =>
        newId(
          this.taskKey,
          prefix,
          table,
          Number(db.get(`SELECT count(*) AS n FROM ${table}`)?.n),
          (id) => db.get(`SELECT 1 FROM ${table} WHERE id = ?`, id) !== undefined,
        ),
    };
  }

  /** Runs one tool call. A mistake of the model gives a result with `isError`, never an exception. */
  call(call: ToolCall): TextResult {
    this.open();
    const spec = this.app.tools.find((candidate) => candidate.name === call.name);
    const handler = this.app.handlers.get(call.name);
    if (!spec || !handler) return failure(`unknown tool ${String(call.name).slice(0, 40)}`);
    const problem = argumentProblem(spec, call.arguments);
    if (problem) return failure(problem);
    const args = call.arguments as Record<string, string | number>;
    const run = () => handler.run(this.context, args);
    try {
      const result = handler.writes ? this.context.db.atomically(run) : run();
      return { text: JSON.stringify(result), isError: false };
    } catch (error) {
      if (!(error instanceof ToolError)) throw error;
      return failure(error.status === 422 ? error.message : `${error.status} ${error.message}`);
    }
  }

  /** Compares the whole database with that of a world after the oracle's calls, and the answer with what the task asks. */
  grade(finalAnswer = ''): WorldGrade {
    const { rows, question } = this.scenario;
    const actual = this.dump();
    const expected = expectedDump(this.taskKey, this.scenario, this.app);
    const problem = question && answerProblem(finalAnswer, question, taskFromKey(this.taskKey).prompt);
    if (!sameContent(this.app, rows, actual, expected)) {
      const difference = describeDifference(this.app, rows, actual, expected);
      return { value: 0, explanation: problem === undefined ? difference : `${difference}; ${problem}` };
    }
    if (problem !== undefined) return { value: 0, explanation: problem };
    const words = question
      ? 'the database and the answer are as they should be'
      : 'the database is as it should be';
    return { value: 1, explanation: words };
  }

  /** The rows of each table as JSON text, in key order, by table name. */
  dump(): ReadonlyMap<string, string> {
    return this.open().dump();
  }

  /** Releases the database; after that, only `close` may be called. */
  close(): void {
    const connection = this.connection;
    if (!connection) return;
    this.connection = undefined;
    connection.end();
    returnConnection(this.app, connection);
  }

  private open(): Connection {
    if (!this.connection) throw new Error(`the world of ${this.taskKey} is closed`);
    return this.connection;
  }
}

function failure(message: string): TextResult {
  return { text: JSON.stringify({ error: message }), isError: true };
}

// All samples of a group share one task, and a step has some tens of groups, so a small cache saves most runs of the oracle.
const maxExpected = 1024;
const expectedDumps = new Map<string, ReadonlyMap<string, string>>();

function expectedDump(taskKey: string, scenario: Scenario, app: App): ReadonlyMap<string, string> {
  const known = expectedDumps.get(taskKey);
  if (known) return known;
  const world = openWorld(taskKey);
  try {
    for (const call of scenario.oracle) {
      const { text, isError } = world.call(call);
      if (isError) throw new Error(`the oracle of ${taskKey} fails at ${call.name} of ${app.name}: ${text}`);
    }
    const dump = world.dump();
    if (expectedDumps.size >= maxExpected) {
      const [oldest] = expectedDumps.keys();
      if (oldest !== undefined) expectedDumps.delete(oldest);
    }
    expectedDumps.set(taskKey, dump);
    return dump;
  } finally {
    world.close();
  }
}
