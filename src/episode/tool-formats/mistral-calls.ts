// Calls of Mistral's models: `[TOOL_CALLS]` with a list of JSON objects, or, since 2025, with `name[ARGS]{…}`, once a call.
import { callOf, callsInJson, endOfJson } from './json-call.js';
import { parseJson } from '../../base/json.js';
import { pieceOf, type ReadCall, type TurnContext, type TurnPiece } from './turn-piece.js';
import { scanTurn } from './turn-scanner.js';

const marks = /\[TOOL_CALLS\]/;
const mark = '[TOOL_CALLS]';
const named = /\s*([\w.-]+)(?:\[CALL_ID\][^[\]{}]*)?(?:\[ARGS\])?\s*(?=\{)/y;

export function mistralCalls(text: string, context: TurnContext): TurnPiece[] {
  return scanTurn(text, context, { marks, readCall: readMistral });
}

function readMistral(text: string, start: number): { pieces: TurnPiece[]; end: number } {
  const body = start + mark.length;
  named.lastIndex = body;
  const name = named.exec(text)?.[1];
  const value =
    name === undefined ? body + (/^\s*/.exec(text.slice(body))?.[0].length ?? 0) : named.lastIndex;
  const end = text[value] === '{' || text[value] === '[' ? endOfJson(text, value) : null;
  if (end === null) {
    const next = text.indexOf(mark, body);
    const cut = next < 0 ? text.length : next;
    const problem = 'the tool call is not valid JSON';
    return { pieces: [{ kind: 'malformed', text: text.slice(start, cut), problem }], end: cut };
  }
  const json = text.slice(value, end);
  const reads = name === undefined ? callsInJson(json) : [namedCall(name, json)];
  return { pieces: reads.map((read) => pieceOf(read, text.slice(start, end))), end };
}

function namedCall(name: string, json: string): ReadCall {
  try {
    return callOf({ name, arguments: parseJson(json) });
  } catch {
    return { problem: 'the arguments of the tool call are not valid JSON' };
  }
}
