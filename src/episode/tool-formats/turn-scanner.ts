// Divides a turn into thinking, text and calls, for formats whose calls begin with a mark. A mark within a call's value or within
// thinking does not count.
import { thinkingMarks } from './marks.js';
import type { ReadStretch, TurnContext, TurnPiece } from './turn-piece.js';

interface ScannedFormat {
  /** Matches where a call may begin. */
  marks: RegExp;
  /** The call that begins at a mark. Null if it is text; a later mark may then begin a call. */
  readCall: (start: number) => ReadStretch | null;
}

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
  let position = 0;
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
  };
  if (context.opensThinking) think(0);
  next.lastIndex = position;
  for (let match = next.exec(text); match; match = next.exec(text)) {
    const { index, groups } = match;
    if (groups?.['open'] !== undefined) {
      addText(index);
      think(next.lastIndex);
    } else if (groups?.['close'] !== undefined) {
      // Blocks may be nested, or a block may have begun in an unknown prompt. So all text before the last closing tag is thinking, as for the template.
      pieces.splice(0, pieces.length, { kind: 'thinking', text: text.slice(0, index) });
      position = next.lastIndex;
    } else {
      const found = readCall(index);
      if (!found) {
        next.lastIndex = Math.max(index + 1, next.lastIndex);
        continue;
      }
      addText(index);
      for (const piece of found.pieces) pieces.push(piece);
      position = found.end;
    }
    next.lastIndex = Math.max(position, index + 1);
  }
  addText(text.length);
  return pieces;
}

/** Index after the sticky pattern's match at `from`; `from` without a match. */
export function skipped(pattern: RegExp, text: string, from: number): number {
  pattern.lastIndex = from;
  return pattern.test(text) ? pattern.lastIndex : from;
}
