// Calls between tags: `<tool_call>{"name": …}</tool_call>` (Hermes, Qwen2.5, Qwen3) and `<function=name><parameter=key>value</parameter>`
// within the same tags (Qwen3-Coder, Qwen3.5). Either form is read from a model of the other one: each has one meaning.
import { callsInJson, endOfJson } from './json-call.js';
import { pieceOf, type TurnContext, type TurnPiece } from './turn-piece.js';
import { scanTurn } from './turn-scanner.js';
import { readXmlCall } from './xml-call.js';

const marks = /<tool_call>|<function_call>|<function=/;
const openings = /<(tool_call|function_call)>\s*(?:```(?:json|xml)?\s*)?/y;
/** Where a call ends that has no closing tag: it was the stop string, or the model forgot it. */
const looseEnds = /<tool_call>|<function_call>|<done>|<\|/g;

export function taggedCalls(text: string, context: TurnContext): TurnPiece[] {
  return scanTurn(text, context, { marks, readCall: readTagged });
}

function readTagged(text: string, start: number, context: TurnContext): { pieces: TurnPiece[]; end: number } {
  openings.lastIndex = start;
  const opening = openings.exec(text);
  const tag = opening?.[1] ?? 'tool_call';
  const body = opening ? openings.lastIndex : start;
  const close = `</${tag}>`;
  const piecesOf = (end: number, problem: string): { pieces: TurnPiece[]; end: number } => ({
    pieces: [{ kind: 'malformed', text: text.slice(start, end), problem }],
    end,
  });
  if (text.startsWith('<function=', body)) {
    const { read, end } = readXmlCall(text, body, context.tools);
    if ('problem' in read) return piecesOf(endAt(text, Math.max(end, body), close), read.problem);
    const closed = behind(text, end, close) ?? end;
    return { pieces: [pieceOf(read, text.slice(start, closed))], end: closed };
  }
  const isJson = text[body] === '{' || text[body] === '[';
  const end = isJson ? endOfJson(text, body) : null;
  if (end === null) return piecesOf(endAt(text, body, close), 'the tool call is not valid JSON');
  const closed = behind(text, end, close);
  const region = endAt(text, end, close);
  if (closed === null && text.startsWith(close, region - close.length))
    return piecesOf(region, 'the tool call has text behind its JSON');
  const last = closed ?? end;
  const reads = callsInJson(text.slice(body, end));
  return { pieces: reads.map((read) => pieceOf(read, text.slice(start, last))), end: last };
}

/** Index behind the closing tag if nothing but white space, or the end of a code block, comes before it. */
function behind(text: string, from: number, close: string): number | null {
  const between = /\s*(?:```\s*)?/y;
  between.lastIndex = from;
  between.exec(text);
  return text.startsWith(close, between.lastIndex) ? between.lastIndex + close.length : null;
}

/** Index behind the closing tag, or where a call without one ends. */
function endAt(text: string, from: number, close: string): number {
  const closing = text.indexOf(close, from);
  looseEnds.lastIndex = from;
  const loose = looseEnds.exec(text)?.index ?? text.length;
  return closing >= 0 && closing < loose ? closing + close.length : loose;
}
