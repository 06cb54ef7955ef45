// Calls of Llama 3: bare JSON, `{"name": …, "parameters": {…}}`, at the beginning of a line or after `<|python_tag|>`.
import { isObject, parseJson } from '../../base/json.js';
import { propertiesOf } from '../schema-type.js';
import { ambiguousCall, callOf, nameKeys } from './json-call.js';
import { JsonEnds } from './json-ends.js';
import {
  pieceOf,
  type ReadCall,
  type ReadStretch,
  stretchOf,
  type TurnContext,
  type TurnPiece,
} from './turn-piece.js';
import { scanTurn, skipped } from './turn-scanner.js';

const pythonTag = '<|python_tag|>';
const marks = /<\|python_tag\|>|^[ \t]*(?=[{[])/;
const looksLikeCall = /\{\s*"(?:name|type|function|parameters)"\s*:/y;
const hasArguments = /"(?:parameters|arguments)"\s*:/;
/** Other braces and brackets begin no JSON that could hold a call: `{city}`, `[1]`. */
const looksLikeJson = /\{\s*"|\[\s*[{["]/y;
const notJson = { problem: 'the tool call is not valid JSON' };
const code = { problem: 'code is not carried out: call a tool with JSON' };

export function llamaCalls(text: string, context: TurnContext): TurnPiece[] {
  const turn = { text, json: new JsonEnds(text), context };
  return scanTurn(text, context, { marks, readCall: (start) => readLlama(turn, start) });
}

interface LlamaTurn {
  text: string;
  json: JsonEnds;
  context: TurnContext;
}

function readLlama(turn: LlamaTurn, start: number): ReadStretch | null {
  const { text, json } = turn;
  const isTagged = text.startsWith(pythonTag, start);
  const body = skipped(/\s*/y, text, isTagged ? start + pythonTag.length : start);
  if (isTagged && text[body] !== '{' && text[body] !== '[')
    return stretchOf(text, start, text.length, [code]);
  const pieces: TurnPiece[] = [];
  for (let from = body; ;) {
    const end = json.behind(from);
    const reads = callsAt(turn, from, end, isTagged);
    if (reads === null) return pieces.length > 0 ? { pieces, end: from } : answer(text, from, end);
    const written = text.slice(from, end ?? text.length);
    for (const read of reads) pieces.push(pieceOf(read, written));
    if (end === null) return { pieces, end: text.length };
    const next = skipped(/\s*[;,]\s*/y, text, end);
    if (next === end || text[next] !== '{') return { pieces, end };
    from = next;
  }
}

/** The call that begins here; null if the JSON is not meant as a call, because it may also be an answer. `end`: null if the JSON does not end. */
function callsAt(
  { text, context }: LlamaTurn,
  from: number,
  end: number | null,
  isTagged: boolean,
): ReadCall[] | null {
  const isList = text[from] === '[';
  looksLikeCall.lastIndex = from;
  const isLike = looksLikeCall.test(text) || (isTagged && !isList);
  if (end === null) return isLike ? [notJson] : isTagged ? [code] : null;
  const json = text.slice(from, end);
  let value: unknown;
  try {
    value = parseJson(json);
  } catch {
    if (isTagged) return [isList ? code : notJson];
    return isLike && hasArguments.test(json) ? [notJson] : null;
  }
  const members: unknown[] = Array.isArray(value) ? value : [value];
  const ambiguous = ambiguousCall(json);
  const reads = ambiguous ? [ambiguous] : members.map(callOf);
  const areMeant = members.length > 0 && members.every((member) => isMeant(member, context));
  if (isTagged) return reads.length > 0 ? reads : [code];
  return areMeant && (isLike || reads.every((read) => 'call' in read)) ? reads : null;
}

function isMeant(value: unknown, context: TurnContext): boolean {
  if (!isObject(value) || isSchema(value['parameters'], value['name'], context)) return false;
  return (
    ['parameters', 'arguments'].some((key) => Object.hasOwn(value, key)) ||
    nameKeys.some((key) => context.tools.some(({ name }) => name === value[key])) ||
    isMeant(value['function'], context)
  );
}

/** True for a tool's declaration: a model that repeats it does not call the tool. */
function isSchema(given: unknown, name: unknown, { tools }: TurnContext): boolean {
  if (!isObject(given) || given['type'] !== 'object' || !isObject(given['properties'])) return false;
  const tool = tools.find((one) => one.name === name);
  return !Object.hasOwn(propertiesOf(tool?.input_schema), 'properties');
}

/** JSON that is no call is text, also if it quotes a call on its own line. Null if it is no JSON. */
function answer(text: string, from: number, end: number | null): ReadStretch | null {
  looksLikeJson.lastIndex = from;
  if (!looksLikeJson.test(text)) return null;
  const behind = end ?? text.length;
  return { pieces: [{ kind: 'text', text: text.slice(from, behind) }], end: behind };
}
