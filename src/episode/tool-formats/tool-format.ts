// The forms in which models write tool calls. A run has one: its prompt teaches it, and its turns are read by it.
import { harmonyCalls } from './harmony-calls.js';
import { doneMark } from './marks.js';
import { llamaCalls } from './llama-calls.js';
import { mistralCalls } from './mistral-calls.js';
import { type ToolFormatName, toolFormatNames } from '../../spec/tool-format-names.js';
import { taggedCalls } from './tagged-calls.js';
import type { ToolCall } from '../../spec/records/task.js';
import { harmonyCall, hermesCall, llamaCall, mistralCall, spacedJson, xmlCall } from './call-text.js';
import type { TurnContext, TurnPiece } from './turn-piece.js';
import { harmonyTurn, joinedTurn, llamaTurn, type TurnPart } from './turn-text.js';

export interface ToolFormat {
  name: ToolFormatName;
  /** Name and version, in plans. The version rises when a turn is read in another way. */
  id: string;
  /** A call as the prompt teaches it; `short` for small models. */
  example: Record<'skyrl' | 'short', string>;
  /** Texts of tokens that end a call or the task, and leave the turn open. */
  stops: readonly string[];
  /** Texts of tokens that end a call and close the turn. */
  closers: readonly string[];
  /** Texts of tokens that end a message within a turn. Generation continues after them, even if a template also closes turns with them. */
  messageEnds: readonly string[];
  /** Texts of the other tokens that structure a turn, without those for thinking and for the end. */
  marks: readonly string[];
  piecesOf(text: string, context: TurnContext): TurnPiece[];
  /** Text of a call, which `piecesOf` reads as this call. */
  callText(call: ToolCall): string;
  /** Text of a turn. The token that closes the turn is left out, unless it also ends a call or an answer. */
  turnText(parts: readonly TurnPart[]): string;
}

const harmonyMarks = ['start', 'end', 'message', 'channel', 'constrain', 'call', 'return'].map(
  (name) => `<|${name}|>`,
);

const exampleCall: ToolCall = { name: 'tool_name', arguments: { param: 'value' } };

/** The functions and examples of a format whose calls stand within text. */
function writtenBy(callText: ToolFormat['callText']): Pick<ToolFormat, 'example' | 'callText' | 'turnText'> {
  const example = callText(exampleCall);
  return { example: { skyrl: example, short: example }, callText, turnText: joinedTurn(callText) };
}

const formats: Record<ToolFormatName, Omit<ToolFormat, 'name' | 'id'> & { version: number }> = {
  hermes: {
    version: 1,
    ...writtenBy((call) => hermesCall(call)),
    example: {
      skyrl: hermesCall(exampleCall, spacedJson),
      short: hermesCall({ name: 'tool', arguments: { arg: 'value' } }),
    },
    stops: ['</tool_call>', doneMark],
    closers: [],
    messageEnds: [],
    marks: ['<tool_call>', '</tool_call>', '<function_call>', '</function_call>'],
    piecesOf: taggedCalls,
  },
  qwen_xml: {
    version: 1,
    ...writtenBy(xmlCall),
    stops: ['</tool_call>', doneMark],
    closers: [],
    messageEnds: [],
    marks: ['<tool_call>', '</tool_call>', '<function_call>', '</function_call>'],
    piecesOf: taggedCalls,
  },
  llama_json: {
    version: 1,
    ...writtenBy(llamaCall),
    turnText: llamaTurn,
    stops: [doneMark],
    closers: ['<|eom_id|>'],
    messageEnds: [],
    marks: ['<|python_tag|>', '<|eom_id|>'],
    piecesOf: llamaCalls,
  },
  mistral: {
    version: 1,
    ...writtenBy(mistralCall),
    stops: [doneMark],
    closers: [],
    messageEnds: [],
    marks: ['[TOOL_CALLS]', '[ARGS]', '[CALL_ID]'],
    piecesOf: mistralCalls,
  },
  gpt_oss: {
    version: 1,
    ...writtenBy(harmonyCall),
    turnText: harmonyTurn,
    stops: [doneMark],
    closers: ['<|call|>', '<|return|>'],
    messageEnds: ['<|end|>'],
    marks: harmonyMarks,
    piecesOf: harmonyCalls,
  },
};

export function toolFormat(name: ToolFormatName): ToolFormat {
  const { version, ...format } = formats[name];
  return { name, id: `${name}/${version}`, ...format };
}

/** The format whose id a run recorded. Throws an Error if this version does not have it. */
export function recordedToolFormat(id: string): ToolFormat {
  const found = toolFormatNames.map(toolFormat).find((format) => format.id === id);
  if (found) return found;
  throw new Error(
    `the run reads tool calls with ${id}, which this version does not have: continue it with the version that began it`,
  );
}

/** The format that a chat template teaches: null if it is not supported, Hermes if the template teaches none. */
export function formatOfTemplate(template: string): ToolFormatName | null {
  const has = (...marks: string[]): boolean => marks.every((mark) => template.includes(mark));
  if (has('<tool_call>', '<function=')) return 'qwen_xml';
  if (has('<tool_call>') && !has('<arg_key>')) return 'hermes';
  if (has('[TOOL_CALLS]')) return 'mistral';
  if (has('<|channel|>', '<|call|>')) return 'gpt_oss';
  if (has('ipython', '"parameters"')) return 'llama_json';
  return /\btool(?:s|_calls)\b/.test(template) ? null : 'hermes';
}
