// The parts of a model's turn, in its order.
import type { ToolCall, ToolSpec } from '../../spec/records/task.js';

export type TurnPiece =
  /** Thinking: nothing in it is carried out, graded, or ends the task. */
  | { kind: 'thinking'; text: string }
  | { kind: 'text'; text: string }
  | { kind: 'call'; text: string; call: ToolCall }
  /** A call that cannot be read. `problem` is written for the model. */
  | { kind: 'malformed'; text: string; problem: string };

export interface TurnContext {
  /** True if the prompt ends within a thinking block. */
  opensThinking: boolean;
  /** Tools of the environment. A format without types needs their schemas to read arguments. */
  tools: readonly ToolSpec[];
  /** True for the text of a control token; absent if the tokenizer is not known. A mark that is no token is plain text of the model. */
  isToken?: (mark: string) => boolean;
}

/** A call, or what is wrong with it. */
export type ReadCall = { call: ToolCall } | { problem: string };

/** Pieces of a stretch of the turn, and the index after it. */
export interface ReadStretch {
  pieces: TurnPiece[];
  end: number;
}

export function pieceOf(read: ReadCall, text: string): TurnPiece {
  return 'call' in read
    ? { kind: 'call', text, call: read.call }
    : { kind: 'malformed', text, problem: read.problem };
}

/** The stretch from `start` to `end` as it was read; each call has the whole text of the stretch. */
export function stretchOf(text: string, start: number, end: number, reads: readonly ReadCall[]): ReadStretch {
  const stretch = text.slice(start, end);
  return { pieces: reads.map((read) => pieceOf(read, stretch)), end };
}
