// The parts of a model's turn, in its order.
import type { ToolCall, ToolSpec } from '../../spec/records/task.js';

export type TurnPiece =
  /** Nothing in it is carried out, graded, or the end. */
  | { kind: 'thinking'; text: string }
  | { kind: 'text'; text: string }
  | { kind: 'call'; text: string; call: ToolCall }
  /** It is meant as a call, and is none. `problem` is written for the model. */
  | { kind: 'malformed'; text: string; problem: string };

export interface TurnContext {
  /** The prompt ends within a thinking block. */
  opensThinking: boolean;
  /** Tools of the environment; a format without types reads its arguments by their schemas. */
  tools: readonly ToolSpec[];
}

/** A call, or what is wrong with it. */
export type ReadCall = { call: ToolCall } | { problem: string };

export function pieceOf(read: ReadCall, text: string): TurnPiece {
  return 'call' in read
    ? { kind: 'call', text, call: read.call }
    : { kind: 'malformed', text, problem: read.problem };
}
