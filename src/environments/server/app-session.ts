// What the server needs of an app: nothing about tables, templates or oracles. Ground truth never crosses this line.
import type { Task, ToolSpec } from '../../spec/records/task.js';
import type { ToolResult } from '../environment.js';

export interface ServedApp {
  /** `env_key` of its tasks. */
  name: string;
  description: string;
  tools: readonly ToolSpec[];
  /** The task of a key, or undefined when the key is not one of this app. */
  task(key: string): Task | undefined;
  /** Tasks that the task API lists for a split; selected by `reset(split, index)` too. */
  numTasks(split: Task['split']): number;
  taskAt(split: Task['split'], index: number): Task;
  open(task: Task, options: { seed: number }): ServedWorld;
}

/** One episode's state. All methods are synchronous: a world is memory, and one process answers thousands a second. */
export interface ServedWorld {
  /** Throws only for defects; a mistake of the model is an `isError` result. */
  call(name: string, args: Record<string, unknown>): ToolResult;
  grade(finalAnswer: string): { value: number; explanation: string };
  close(): void;
}

export type InfrastructureFault = 'error' | 'drop' | 'hang';

/** Faults that the server injects on purpose (R26). Pure functions of their arguments. */
export interface FaultSource {
  /** Text that the model sees instead of the tool's result. */
  toolError(key: { seed: number; turn: number; rate: number }): string | undefined;
  infrastructure(key: {
    seed: number;
    /** Turn of the call; `resetTurn` and `gradeTurn` for the frames around them. */
    turn: number;
    try: number;
    rate: number;
  }): InfrastructureFault | undefined;
}

export const resetTurn = -1;
export const gradeTurn = -2;
