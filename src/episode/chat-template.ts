// A model's chat template, used token-in token-out.
//
// Invariant: generated ids are never tokenised again. Only the template's own text between two turns is tokenised.
import { Template } from '@huggingface/jinja';
import { channelMark, thinkingMarks } from './tool-formats/marks.js';
import { endsThinking } from './tool-formats/turn-scanner.js';
import type { Tokenizer } from './tokenizer.js';

export interface ChatMessage {
  role: 'system' | 'user' | 'assistant';
  content: string;
}

export interface ChatTemplate {
  /** Id of the special token with which the template closes the last assistant turn of a conversation; generation stops at it. */
  readonly endOfTurn: number;
  /** Ids of the tokens with which the template closes the last assistant turn and earlier ones. The latter may also stand within a turn. */
  readonly closers: readonly number[];
  /** True if the generation prompt ends within a thinking block. */
  readonly opensThinking: boolean;
  /** True if the template supports thinking, in its text or in its generation prompt. */
  readonly mayThink: boolean;
  /** Text of a conversation, followed by the generation prompt. `today`: for templates that print a date. */
  prompt(messages: readonly ChatMessage[], today?: string): string;
  /** Text of a conversation, without a generation prompt. */
  conversation(messages: readonly ChatMessage[], today?: string): string;
  /**
   * Text between an assistant turn and the next one: the rest of the turn's closing, the observation as a user message, and the generation
   * prompt. `closed`: the turn already ended with a token that closes it.
   */
  between(observation: string, closed: boolean): string;
  /** True if the template leaves out the thinking of earlier turns, which an episode keeps. */
  dropsThinking(): boolean;
}

/** Variables that are given to each rendering. A template that names special tokens sets their texts itself. */
export const renderedVariables: readonly string[] = [
  ...['messages', 'add_generation_prompt', 'task_date', 'date_string', 'tools'],
  ...['bos_token', 'eos_token'],
];

// Words that no template contains. They show where a turn's content begins and ends.
const task = 'longhaul-fixed-base-task';
const turn = 'longhaul-fixed-base-turn';
const thinkingProbe = 'longhaul-thinking-probe';
const systemProbe = 'longhaul-system-probe';
const observationProbe = 'longhaul-observation-probe';

/** Throws an Error that says what the template lacks. */
export function loadChatTemplate(source: string, tokenizer: Tokenizer): ChatTemplate {
  const template = parse(source);

  function render(messages: readonly ChatMessage[], generate: boolean, today: string): string {
    return template.render({
      bos_token: '',
      eos_token: '',
      messages: messages.map((message) => ({ ...message })),
      add_generation_prompt: generate,
      task_date: () => today,
      date_string: today,
    });
  }

  const base: ChatMessage[] = [
    { role: 'user', content: task },
    { role: 'assistant', content: turn },
  ];
  /** The template's text after the content of the assistant turn in `base`. */
  function afterTurn(rest: ChatMessage[], generate: boolean): string {
    const text = render([...base, ...rest], generate, '');
    const start = text.indexOf(turn);
    if (start < 0) throw new Error('the chat template drops the text of an assistant turn');
    return text.slice(start + turn.length);
  }

  /** True if the template leaves out the thinking of a turn that is not the last. Templates read thinking from the text, or from its own field. */
  function dropsThinking(): boolean {
    const next: ChatMessage = { role: 'user', content: observationProbe };
    const shows = (thought: object, rest: ChatMessage[]): boolean => {
      const thinking = { role: 'assistant' as const, content: turn, ...thought };
      return render([base[0]!, thinking, ...rest], rest.length > 0, '').includes(thinkingProbe);
    };
    const within = thinkingMarks.map(([open, close]) => `${open}\n${thinkingProbe}\n${close}\n\n${turn}`);
    const beside = ['thinking', 'reasoning_content'].map((key) => ({ [key]: thinkingProbe }));
    return (
      within.some((content) => !shows({ content }, [next])) ||
      beside.some((thought) => shows(thought, []) && !shows(thought, [next]))
    );
  }

  const closing = tokenizer.leadingAddedToken(afterTurn([], false));
  if (closing === null) {
    throw new Error(
      'the chat template does not close an assistant turn with a special token of this tokenizer',
    );
  }
  const observed = (observation: string): string => afterTurn([{ role: 'user', content: observation }], true);
  const frame = verbatimFrame(observed);
  const closingBefore = tokenizer.leadingAddedToken(observed(observationProbe)) ?? closing;
  return {
    endOfTurn: closing.id,
    closers: [...new Set([closing.id, closingBefore.id])],
    opensThinking: endsThinking(observed(observationProbe)),
    mayThink: [...thinkingMarks.flat(), channelMark].some((mark) => source.includes(mark)),
    prompt: (messages, today = '') => render(messages, true, today),
    conversation: (messages, today = '') => render(messages, false, today),
    between(observation, closed) {
      const text = frame ? frame.before + observation + frame.after : observed(observation);
      return closed ? text.slice(closingBefore.text.length) : text;
    },
    dropsThinking,
  };
}

/** Why the template does not show the system prompt to the model; null if it does. */
export function systemRefusal(template: ChatTemplate): string | null {
  try {
    const prompt = template.prompt([
      { role: 'system', content: systemProbe },
      { role: 'user', content: task },
    ]);
    return prompt.includes(systemProbe) ? null : 'it leaves out a system message';
  } catch (error) {
    return `it refuses a system message: ${(error as Error).message}`;
  }
}

/**
 * The template's text before and after an observation, if the template inserts observations unchanged; null if it trims or rewrites them.
 * Rendering the whole conversation for each tool result would be slower than tokenising it.
 */
function verbatimFrame(render: (text: string) => string): { before: string; after: string } | null {
  const [before, after, ...more] = render(observationProbe).split(observationProbe);
  if (before === undefined || after === undefined || more.length > 0) return null;
  const awkward = ` \n${observationProbe}<think>\t</think> {"a": "<|im_end|>"}\n `;
  return render(awkward) === before + awkward + after ? { before, after } : null;
}

function parse(source: string): Template {
  try {
    // The prompt must not depend on a clock, only on the task. The library's clock function cannot be overridden, so its name is replaced.
    // Jinja reads each line end as a newline.
    const lines = source.replace(/\r\n?/g, '\n');
    return new Template(lines.replace(/\bstrftime_now\b/g, 'task_date'));
  } catch (error) {
    throw new Error(`the chat template is not valid Jinja: ${(error as Error).message}`, { cause: error });
  }
}
