// Turns of gpt-oss, in OpenAI's Harmony format: each message has a channel. `analysis` is thinking, `final` the answer, and a message to
// `functions.NAME` is a call.
import { callWithArguments } from './json-call.js';
import { pieceOf, type TurnPiece } from './turn-piece.js';

const contentEnd = /<\|(?:end|call|return)\|>/;

export function harmonyCalls(text: string): TurnPiece[] {
  // The prompt ends with `<|start|>assistant`.
  return text
    .split('<|start|>')
    .map(pieceOfMessage)
    .filter(({ text }) => text.trim() !== '');
}

function pieceOfMessage(message: string, index: number): TurnPiece {
  // Messages that the model writes in the name of others are no part of its answer.
  if (index > 0 && !message.startsWith('assistant')) return { kind: 'thinking', text: message };
  const [header = '', ...rest] = message.split('<|message|>');
  if (rest.length === 0) {
    if (!header.includes('<|channel|>')) return { kind: index > 0 ? 'thinking' : 'text', text: header };
    return { kind: 'malformed', text: message, problem: 'the message has no content' };
  }
  const content = rest.join('<|message|>').split(contentEnd)[0] ?? '';
  const recipient = /\bto=([^\s<]+)/.exec(header)?.[1];
  if (recipient !== undefined) {
    const name = recipient.replace(/^functions\./, '');
    return pieceOf(callWithArguments(name, content.trim() === '' ? '{}' : content), message);
  }
  const isThinking = /<\|channel\|>\s*analysis\b/.test(header);
  return { kind: isThinking ? 'thinking' : 'text', text: content };
}
