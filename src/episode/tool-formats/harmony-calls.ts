// Turns of gpt-oss, in OpenAI's Harmony format: messages with a channel each. `analysis` is thinking, `final` the answer, and a message to
// `functions.NAME` is a call.
import { parseJson } from '../../base/json.js';
import { callOf } from './json-call.js';
import { pieceOf, type ReadCall, type TurnContext, type TurnPiece } from './turn-piece.js';

const contentEnd = /<\|(?:end|call|return)\|>/;

export function harmonyCalls(text: string, _: TurnContext): TurnPiece[] {
  // The prompt ends with `<|start|>assistant`.
  return text
    .split('<|start|>')
    .filter((message) => message.trim() !== '')
    .map(pieceOfMessage);
}

function pieceOfMessage(message: string): TurnPiece {
  const [header = '', ...rest] = message.split('<|message|>');
  if (rest.length === 0) {
    if (!header.includes('<|channel|>')) return { kind: 'text', text: header };
    return { kind: 'malformed', text: message, problem: 'the message has no content' };
  }
  const content = rest.join('<|message|>').split(contentEnd)[0] ?? '';
  const recipient = /\bto=([^\s<]+)/.exec(header)?.[1];
  if (recipient !== undefined) return pieceOf(callTo(recipient, content), message);
  const isThinking = /<\|channel\|>\s*analysis\b/.test(header);
  return { kind: isThinking ? 'thinking' : 'text', text: content };
}

function callTo(recipient: string, content: string): ReadCall {
  const name = recipient.replace(/^functions\./, '');
  try {
    return callOf({ name, arguments: content.trim() === '' ? {} : parseJson(content) });
  } catch {
    return { problem: 'the arguments of the tool call are not valid JSON' };
  }
}
