// Calls between tags: `<tool_call>{"name": …}</tool_call>` (Hermes, Qwen2.5, Qwen3) and `<function=name><parameter=key>value</parameter>`
// within the same tags (Qwen3-Coder, Qwen3.5). Both forms are read from any of these models, because neither can be mistaken for the other.
import { callsInJson } from './json-call.js';
import { doneMark } from './marks.js';
import { JsonEnds } from './json-ends.js';
import { Places } from './places.js';
import { type ReadStretch, stretchOf, type TurnContext, type TurnPiece } from './turn-piece.js';
import { scanTurn, skipped } from './turn-scanner.js';
import { XmlCalls } from './xml-call.js';

const marks = /<tool_call>|<function_call>|<function=/;
const openings = /<(tool_call|function_call)>\s*(?:```(?:json|xml)?\s*)?/y;
/** Where a call without a closing tag ends: the tag was the stop string, or the model forgot it. */
const looseEnds = new RegExp(`<tool_call>|<function_call>|${doneMark}|<\\|`, 'g');

export function taggedCalls(text: string, context: TurnContext): TurnPiece[] {
  return scanTurn(text, context, { marks, readCall: taggedReader(text, context) });
}

/** The calls of a turn, and where they stand; without the calls within thinking. */
export function callStretches(text: string, context: TurnContext): (ReadStretch & { start: number })[] {
  const read = taggedReader(text, context);
  const found: (ReadStretch & { start: number })[] = [];
  const readCall = (start: number): ReadStretch => {
    const stretch = read(start);
    found.push({ start, ...stretch });
    return stretch;
  };
  const pieces = new Set(scanTurn(text, context, { marks, readCall }));
  return found.filter((stretch) => stretch.pieces.some((piece) => pieces.has(piece)));
}

function taggedReader(text: string, { tools }: TurnContext): (start: number) => ReadStretch {
  const loose = new Places(text, looseEnds);
  const turn = { text, json: new JsonEnds(text), xml: new XmlCalls(text, tools), loose };
  return (start) => readTagged(turn, start);
}

interface TaggedTurn {
  text: string;
  json: JsonEnds;
  xml: XmlCalls;
  loose: Places;
}

function readTagged(turn: TaggedTurn, start: number): ReadStretch {
  const { text, json, xml } = turn;
  openings.lastIndex = start;
  const opening = openings.exec(text);
  const tag = opening?.[1] ?? 'tool_call';
  const body = opening ? openings.lastIndex : start;
  const close = `</${tag}>`;
  const malformed = (end: number, problem: string): ReadStretch => stretchOf(text, start, end, [{ problem }]);
  if (text.startsWith('<function=', body)) {
    const { read, end } = xml.at(body);
    if ('problem' in read) return malformed(endAt(turn, Math.max(end, body), close), read.problem);
    return stretchOf(text, start, behind(text, end, close) ?? end, [read]);
  }
  const isJson = text[body] === '{' || text[body] === '[';
  const end = isJson ? json.behind(body) : null;
  if (end === null) return malformed(endAt(turn, body, close), 'the tool call is not valid JSON');
  const closed = behind(text, end, close);
  if (closed === null) {
    const region = endAt(turn, end, close);
    if (text.startsWith(close, region - close.length))
      return malformed(region, 'the tool call has text behind its JSON');
  }
  return stretchOf(text, start, closed ?? end, callsInJson(text.slice(body, end)));
}

/** Index after the closing tag if only white space or the end of a code block comes before the tag; else null. */
function behind(text: string, from: number, close: string): number | null {
  const between = skipped(/\s*(?:```\s*)?/y, text, from);
  return text.startsWith(close, between) ? between + close.length : null;
}

/** Index after the closing tag, or where a call without one ends. */
function endAt({ text, loose: ends }: TaggedTurn, from: number, close: string): number {
  const loose = ends.from(from) ?? text.length;
  const closing = text.slice(from, loose).indexOf(close);
  return closing >= 0 ? from + closing + close.length : loose;
}
