// Calls of Llama 3: bare JSON, `{"name": …, "parameters": {…}}`, at the beginning of a line, or behind `<|python_tag|>`.
import { callsInJson, endOfJson } from './json-call.js';
import { pieceOf, type TurnContext, type TurnPiece } from './turn-piece.js';
import { scanTurn } from './turn-scanner.js';

const pythonTag = '<|python_tag|>';
const marks = /<\|python_tag\|>|^[ \t]*(?=\{)/;
const looksLikeCall = /\{\s*"(?:name|type|function|parameters)"\s*:/y;
const hasArguments = /"(?:parameters|arguments)"\s*:/;

export function llamaCalls(text: string, context: TurnContext): TurnPiece[] {
  return scanTurn(text, context, { marks, readCall: readLlama });
}

function readLlama(
  text: string,
  start: number,
  { tools }: TurnContext,
): { pieces: TurnPiece[]; end: number } | null {
  const isTagged = text.startsWith(pythonTag, start);
  const body = skipped(/\s*/y, text, isTagged ? start + pythonTag.length : start);
  if (text[body] !== '{')
    return isTagged
      ? malformed(text, start, text.length, 'code is not carried out: call a tool with JSON')
      : null;
  const pieces: TurnPiece[] = [];
  for (let from = body; ;) {
    const end = endOfJson(text, from);
    looksLikeCall.lastIndex = from;
    const isMeant = isTagged || looksLikeCall.test(text);
    if (end === null) {
      if (!isMeant) return pieces.length > 0 ? { pieces, end: from } : null;
      const cut = malformed(text, from, text.length, 'the tool call is not valid JSON');
      return { pieces: [...pieces, ...cut.pieces], end: cut.end };
    }
    const json = text.slice(from, end);
    const reads = callsInJson(json);
    // A JSON object may also be an answer.
    const isCall = reads.some(
      (read) =>
        'call' in read && (hasArguments.test(json) || tools.some(({ name }) => name === read.call.name)),
    );
    const isOther = !isTagged && !isCall && !(isMeant && hasArguments.test(json));
    if (isOther) return pieces.length > 0 ? { pieces, end: from } : null;
    pieces.push(...reads.map((read) => pieceOf(read, json)));
    const further = /\s*;\s*(?=\{)/y;
    further.lastIndex = end;
    if (!further.test(text)) return { pieces, end };
    from = further.lastIndex;
  }
}

function malformed(text: string, start: number, end: number, problem: string) {
  return { pieces: [{ kind: 'malformed' as const, text: text.slice(start, end), problem }], end };
}

function skipped(pattern: RegExp, text: string, from: number): number {
  pattern.lastIndex = from;
  pattern.exec(text);
  return pattern.lastIndex;
}
