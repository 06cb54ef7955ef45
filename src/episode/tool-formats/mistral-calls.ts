// Calls of Mistral's models: `[TOOL_CALLS]` with a list of JSON objects, or, since 2025, with `name[ARGS]{…}`, once a call.
import { callsInJson, callWithArguments } from './json-call.js';
import { JsonEnds } from './json-ends.js';
import { type ReadStretch, stretchOf, type TurnContext, type TurnPiece } from './turn-piece.js';
import { scanTurn, skipped } from './turn-scanner.js';

const marks = /\[TOOL_CALLS\]/;
const mark = '[TOOL_CALLS]';
const named = /\s*([\w.-]+)(?:\[CALL_ID\][\w.-]*)?(?:\[ARGS\])?\s*(?=\{)/y;

export function mistralCalls(text: string, context: TurnContext): TurnPiece[] {
  const json = new JsonEnds(text);
  return scanTurn(text, context, { marks, readCall: (start) => readMistral(text, json, start) });
}

function readMistral(text: string, json: JsonEnds, start: number): ReadStretch {
  const body = start + mark.length;
  named.lastIndex = body;
  const name = named.exec(text)?.[1];
  const value = name === undefined ? skipped(/\s*/y, text, body) : named.lastIndex;
  const end = text[value] === '{' || text[value] === '[' ? json.behind(value) : null;
  if (end === null) {
    const next = text.indexOf(mark, body);
    return stretchOf(text, start, next < 0 ? text.length : next, [
      { problem: 'the tool call is not valid JSON' },
    ]);
  }
  if (name !== undefined)
    return stretchOf(text, start, end, [callWithArguments(name, text.slice(value, end))]);
  // A model may forget the brackets of the list: each further object is another call.
  const reads = callsInJson(text.slice(value, end));
  let last = end;
  for (;;) {
    const next = skipped(/\s*[;,]\s*/y, text, last);
    const further = next > last && text[next] === '{' ? json.behind(next) : null;
    if (further === null) return stretchOf(text, start, last, reads);
    reads.push(...callsInJson(text.slice(next, further)));
    last = further;
  }
}
