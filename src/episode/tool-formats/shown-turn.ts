// Writes the turns of demonstrations in a run's format.
import type { ToolSpec } from '../../spec/records/task.js';
import { actionOf, type TurnAction } from '../turn-action.js';
import { callStretches, taggedCalls } from './tagged-calls.js';
import type { ToolFormat } from './tool-format.js';
import type { TurnPiece } from './turn-piece.js';
import type { TurnPart } from './turn-text.js';

const hermes = { piecesOf: taggedCalls };
const xmlForm = /^(?:<(?:tool_call|function_call)>\s*)?<function=/;

/**
 * Translates a turn of a demonstration, which has Hermes' tags, to the run's format. Text outside tags is not changed, because it may already be
 * in the run's format. Throws an Error if the format cannot express the turn.
 */
export function turnIn(format: ToolFormat, text: string, tools: readonly ToolSpec[]): string {
  if (format.name === 'hermes') return text;
  const context = { opensThinking: false, tools };
  const isCall = ({ kind }: TurnPiece): boolean => kind === 'call';
  const stretches = callStretches(text, context).filter(
    ({ start }) => format.name !== 'qwen_xml' || !xmlForm.test(text.slice(start, start + 200)),
  );
  // If a call is already in the run's format, tags within its arguments are plain text.
  const isOwn =
    !stretches.some(({ pieces }) => pieces.some(isCall)) && format.piecesOf(text, context).some(isCall);
  if (isOwn || (stretches.length === 0 && (format.name !== 'gpt_oss' || text.includes('<|message|>'))))
    return text;
  const parts: TurnPart[] = [];
  let position = 0;
  for (const { start, end, pieces } of stretches) {
    parts.push(text.slice(position, start));
    for (const piece of pieces) {
      if (piece.kind === 'malformed') throw new Error(`its call is malformed: ${piece.problem}`);
      if (piece.kind === 'call') parts.push(piece.call);
    }
    position = end;
  }
  parts.push(text.slice(position));
  const written = format.turnText(parts.filter((part) => part !== ''));
  refuseOther(format, actionOf(text, hermes, context), actionOf(written, format, context));
  return written;
}

/** Throws if the written turn would be read as another one. Values without a type are equal if their texts are equal. */
function refuseOther(format: ToolFormat, meant: TurnAction, read: TurnAction): void {
  const [wanted, found] = [meant, read].map(({ asked, others, isDone }) => ({
    call: asked?.kind === 'call' ? format.callText(asked.call) : asked,
    others,
    isDone,
  }));
  if (JSON.stringify(wanted) === JSON.stringify(found)) return;
  const name = meant.asked?.kind === 'call' ? `its call of ${meant.asked.call.name}` : 'its text';
  throw new Error(`${name} would be read as something else`);
}
