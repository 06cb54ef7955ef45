// Divides a turn into thinking, text and calls, for formats whose calls begin with a mark. A mark within a call's value or within thinking is
// none.
import type { TurnContext, TurnPiece } from './turn-piece.js';

/** What begins at a mark: pieces up to `end`. Null: it is text. */
export type CallReader = (
  text: string,
  start: number,
  context: TurnContext,
) => { pieces: TurnPiece[]; end: number } | null;

interface ScannedFormat {
  /** Matches where a call may begin. */
  marks: RegExp;
  readCall: CallReader;
}

const thinkingTags = ['think', 'thinking'].map((tag) => [`<${tag}>`, `</${tag}>`] as const);
const thinkingMarks = [...thinkingTags, ['[THINK]', '[/THINK]'] as const];
const literal = (text: string): string => text.replace(/[.*+?^${}()|[\]\\/-]/g, '\\$&');
const openings = thinkingMarks.map(([open]) => literal(open)).join('|');
const closings = thinkingMarks.map(([, close]) => literal(close)).join('|');

/** True if a prompt ends within a thinking block. */
export function endsThinking(prompt: string): boolean {
  const last = [...prompt.matchAll(new RegExp(`(${openings})|(${closings})`, 'g'))].at(-1);
  return last?.[1] !== undefined;
}

export function scanTurn(
  text: string,
  context: TurnContext,
  { marks, readCall }: ScannedFormat,
): TurnPiece[] {
  const next = new RegExp(`(?<open>${openings})|(?<close>${closings})|${marks.source}`, `gm`);
  const pieces: TurnPiece[] = [];
  let [position, hasThought] = [0, false];
  const addText = (end: number): void => {
    if (end > position) pieces.push({ kind: 'text', text: text.slice(position, end) });
  };
  const think = (start: number): void => {
    const close = new RegExp(closings, 'g');
    close.lastIndex = start;
    const found = close.exec(text);
    // A block that is not finished reaches to the end.
    pieces.push({ kind: 'thinking', text: text.slice(start, found?.index ?? text.length) });
    position = found ? close.lastIndex : text.length;
    hasThought = true;
  };
  if (context.opensThinking) think(0);
  next.lastIndex = position;
  for (let match = next.exec(text); match; match = next.exec(text)) {
    const { index, groups } = match;
    if (groups?.['open'] !== undefined) {
      addText(index);
      think(next.lastIndex);
    } else if (groups?.['close'] !== undefined) {
      // The block began in a prompt that nobody knows of, so all before it is thinking.
      if (hasThought) addText(index);
      else pieces.splice(0, pieces.length, { kind: 'thinking', text: text.slice(0, index) });
      hasThought = true;
      position = next.lastIndex;
    } else {
      const found = readCall(text, index, context);
      if (!found) {
        next.lastIndex = Math.max(index + 1, next.lastIndex);
        continue;
      }
      addText(index);
      pieces.push(...found.pieces);
      position = found.end;
    }
    next.lastIndex = Math.max(position, index + 1);
  }
  addText(text.length);
  return pieces;
}
