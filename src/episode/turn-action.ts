// What a turn asks for: a tool call, the end, or nothing. Thinking asks for nothing, and is not part of an answer.
import type { ToolCall } from '../spec/records/task.js';
import { doneMark } from './tool-formats/marks.js';
import type { ToolFormat } from './tool-formats/tool-format.js';
import type { TurnContext, TurnPiece } from './tool-formats/turn-piece.js';

export interface TurnAction {
  /** The first valid call. Without one, the first malformed call, with its problem for the model; null if the turn has no call. */
  asked: { kind: 'call'; call: ToolCall } | { kind: 'malformed'; problem: string } | null;
  /** Number of further calls; they are not carried out. */
  others: number;
  /** The text says that the task is finished. */
  isDone: boolean;
  /** Text without thinking, calls and marks; the verifier gets it as the final answer. */
  answer: string;
}

/** This mark counts only at the end of the text, because a list of finished items may contain it anywhere. */
const atEnd = /\[done\]\s*$/i;
const doneMarks = new RegExp(`${doneMark}|${atEnd.source}`, 'i');

export function actionOf(
  text: string,
  format: Pick<ToolFormat, 'piecesOf'>,
  context: TurnContext,
): TurnAction {
  const pieces = format.piecesOf(text, context);
  const isAsking = ({ kind }: TurnPiece): boolean => kind === 'call' || kind === 'malformed';
  const calls = pieces.filter((piece) => piece.kind === 'call' || piece.kind === 'malformed');
  const asked = calls.find((piece) => piece.kind === 'call') ?? calls[0] ?? null;
  return {
    asked:
      asked &&
      (asked.kind === 'call'
        ? { kind: 'call', call: asked.call }
        : { kind: 'malformed', problem: asked.problem }),
    others: Math.max(0, calls.length - 1),
    // A mark before a call is only mentioned: "I call it, then I say <done>."
    isDone: doneMarks.test(said(pieces.slice(pieces.findLastIndex(isAsking) + 1), context)),
    answer: said(pieces, context).replace(new RegExp(doneMark, 'gi'), '').replace(atEnd, '').trim(),
  };
}

function said(pieces: readonly TurnPiece[], { isToken = () => true }: TurnContext): string {
  return pieces
    .map((piece) => (piece.kind === 'text' ? piece.text : ''))
    .join('')
    .replace(/<\|[A-Za-z0-9_]+\|>/g, (mark) => (isToken(mark) ? '' : mark));
}
