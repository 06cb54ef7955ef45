// Writes turns with given calls in each format, for demonstrations.
import type { ToolCall } from '../../spec/records/task.js';
import { harmonyCall, llamaCall } from './call-text.js';
import { scanTurn } from './turn-scanner.js';

/** Text, or a call. */
export type TurnPart = string | ToolCall;

/** For formats whose calls may stand anywhere in the text. */
export const joinedTurn =
  (callText: (call: ToolCall) => string) =>
  (parts: readonly TurnPart[]): string =>
    parts.map((part) => (typeof part === 'string' ? part : callText(part))).join('');

/** For formats whose calls begin a line. */
export function llamaTurn(parts: readonly TurnPart[]): string {
  let turn = '';
  for (const [index, part] of parts.entries()) {
    const isBegun = turn !== '' && !turn.endsWith('\n');
    if (typeof part === 'string') turn += part;
    else if (typeof parts[index - 1] === 'object') turn += `; ${llamaCall(part)}`;
    else turn += `${isBegun ? '\n' : ''}${llamaCall(part)}`;
  }
  return turn;
}

/** For Harmony, in which each part is its own message. */
export function harmonyTurn(parts: readonly TurnPart[]): string {
  const messages = parts.flatMap((part, index) => {
    if (typeof part !== 'string') return [harmonyCall(part)];
    const isLast = !parts.slice(index).some((later) => typeof later !== 'string');
    const channel = isLast ? 'final' : 'commentary';
    return withoutCalls(part).flatMap(({ kind, text }) =>
      text.trim() === ''
        ? []
        : [`<|channel|>${kind === 'thinking' ? 'analysis' : channel}<|message|>${text.trim()}<|end|>`],
    );
  });
  // The last message ends the turn.
  return messages.join('<|start|>assistant').replace(/(<\|channel\|>final[^]*)<\|end\|>$/, '$1<|return|>');
}

const withoutCalls = (text: string) =>
  scanTurn(text, { opensThinking: false, tools: [] }, { marks: /(?!)/, readCall: () => null });
