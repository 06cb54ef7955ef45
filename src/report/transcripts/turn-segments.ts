// Divides a turn of the model into the pieces that the run reads, to show it to people.
import { writeJson } from '../../base/json.js';
import { actionOf } from '../../episode/turn-action.js';
import type { ToolFormat } from '../../episode/tool-formats/tool-format.js';
import type { TurnContext } from '../../episode/tool-formats/turn-piece.js';
import type { ToolCall } from '../../spec/records/task.js';

/** A part of the model's turn: text, a call, or the end. */
export type Segment =
  | { kind: 'text'; text: string }
  | { kind: 'call'; name: string; arguments: [name: string, value: string][] }
  /** A call that cannot be read. */
  | { kind: 'malformed'; text: string }
  | { kind: 'done' };

/** `format` and `context`: those with which the run reads the turn. `hidden`: texts that are left out of what the model says and thinks. */
export function segmentsOf(
  text: string,
  format: Pick<ToolFormat, 'piecesOf'>,
  context: TurnContext,
  hidden: readonly string[] = [],
): Segment[] {
  const pieces = format.piecesOf(text, context);
  const { isDone } = actionOf(text, format, context);
  const end = isDone
    ? pieces.findLastIndex(({ kind, text }) => kind === 'text' && text.search(mark) >= 0)
    : -1;
  return pieces.flatMap((piece, at): Segment[] => {
    if (piece.kind === 'call') return [callSegment(piece.call)];
    if (piece.kind === 'malformed') return [{ kind: 'malformed', text: withoutTags(piece.text) }];
    const shown = hidden.reduce((rest, token) => rest.replaceAll(token, ''), piece.text);
    return at === end ? endSegments(shown) : textSegments(shown);
  });
}

/** The segments with at most `limit` characters of text. A text that was cut says so. */
export function cutSegments(segments: readonly Segment[], limit: number): Segment[] {
  let left = limit;
  const cut = (text: string): string => {
    const shown = cutText(text, Math.max(0, left));
    left -= text.length;
    return shown;
  };
  const shown: Segment[] = [];
  for (const segment of segments) {
    if (left <= 0) {
      shown.push({ kind: 'text', text: `[cut: ${segments.length - shown.length} more parts]` });
      break;
    }
    if (segment.kind === 'call') {
      const given = segment.arguments.map(([key, value]): [string, string] => [cut(key), cut(value)]);
      shown.push({ ...segment, name: cut(segment.name), arguments: given });
    } else shown.push(segment.kind === 'done' ? segment : { ...segment, text: cut(segment.text) });
  }
  return shown;
}

export function cutText(text: string, limit: number): string {
  return text.length <= limit ? text : `${text.slice(0, limit)}\n[cut: ${text.length} characters]`;
}

/** The mark with which a turn ends the task. Only the last one is shown as the end, because a turn may mention the mark before. */
const mark = /<done>|\[done\]/gi;

function endSegments(text: string): Segment[] {
  const last = [...text.matchAll(mark)].at(-1);
  if (!last) return textSegments(text);
  return [
    ...textSegments(text.slice(0, last.index)),
    { kind: 'done' },
    ...textSegments(text.slice(last.index + last[0].length)),
  ];
}

function textSegments(text: string): Segment[] {
  return text.trim() === '' ? [] : [{ kind: 'text', text: text.trim() }];
}

function callSegment({ name, arguments: given }: ToolCall): Segment {
  return {
    kind: 'call',
    name,
    arguments: Object.entries(given).map(([key, value]) => [key, writeJson(value)]),
  };
}

function withoutTags(text: string): string {
  return text.replace(/^<(tool_call|function_call)>|<\/(tool_call|function_call)>$/g, '').trim();
}
