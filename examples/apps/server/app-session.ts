// The interface between the server and an app. It has no tables, templates or oracles, so the server never knows the solution of a task.
import type { TaskRow, ToolSpec } from '../task-row.js';
import type { TextResult } from '../app.js';

/** Tasks that the task API lists, which `reset(split, index)` can select, too. */
export interface TaskLists {
  /** Number of tasks of a split; undefined if there is no such split. */
  numTasks(split: string): number | undefined;
  /** @throws RangeError for an index that the split does not have. */
  taskAt(split: string, index: number): TaskRow;
}

export interface ServedApp extends TaskLists {
  /** The app's name, which is the `env_key` of its tasks. */
  name: string;
  description: string;
  tools: readonly ToolSpec[];
  /** The task with this key; undefined if it is not a task of this app. */
  task(key: string): TaskRow | undefined;
  open(task: TaskRow, options: { seed: number }): ServedWorld;
}

/** The state of one episode. All methods are synchronous: a world is in memory, and one process answers thousands of calls a second. */
export interface ServedWorld {
  /** A mistake of the model gives a result with `isError`; throws only because of a bug. */
  call(name: string, args: Record<string, unknown>): TextResult;
  grade(finalAnswer: string): { value: number; explanation: string };
  close(): void;
}

export type InfrastructureFault = 'error' | 'drop' | 'hang';

/** Faults that the server injects on purpose (R26): pure functions of their arguments. */
export interface FaultSource {
  /** The text that the model sees instead of the tool's result; undefined for no error. */
  toolError(key: { seed: number; turn: number; rate: number }): string | undefined;
  infrastructure(key: {
    seed: number;
    /** Turn of the call; `resetTurn` and `gradeTurn` for the reset before the calls and the grade after them. */
    turn: number;
    try: number;
    rate: number;
  }): InfrastructureFault | undefined;
}

export const resetTurn = -1;
export const gradeTurn = -2;
