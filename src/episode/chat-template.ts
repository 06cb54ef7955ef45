// A model's chat template, used token-in token-out.
//
// Invariant: generated ids are never tokenised again; only the text that the template puts between two turns is.
import { Template } from '@huggingface/jinja';
import type { Tokenizer } from './tokenizer.js';

export interface ChatMessage {
  role: 'system' | 'user' | 'assistant';
  content: string;
}

export interface ChatTemplate {
  /** Id of the special token that the template closes an assistant's turn with; generation stops at it. */
  readonly endOfTurn: number;
  /** Text of a conversation, with the generation prompt behind it. `today`: for templates that print a date. */
  prompt(messages: readonly ChatMessage[], today?: string): string;
  /** Text of a conversation as it stands, with nothing behind its last turn. */
  conversation(messages: readonly ChatMessage[], today?: string): string;
  /**
   * Text between an assistant's turn and the next one: the rest of the turn's closing, the observation as a user message, the generation
   * prompt. `closed`: the turn's last token was `endOfTurn`.
   */
  between(observation: string, closed: boolean): string;
}

export interface SpecialTokenTexts {
  bos_token?: string;
  eos_token?: string;
}

// Words that no template adds, which mark where a turn's content ends.
const task = 'longhaul-fixed-base-task';
const turn = 'longhaul-fixed-base-turn';
const observationProbe = 'longhaul-observation-probe';

/** Throws an Error that says what the template lacks. */
export function loadChatTemplate(
  source: string,
  tokenizer: Tokenizer,
  texts: SpecialTokenTexts = {},
): ChatTemplate {
  const template = parse(source);

  function render(messages: readonly ChatMessage[], generate: boolean, today: string): string {
    return template.render({
      bos_token: '',
      eos_token: '',
      ...texts,
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
  /** What the template writes after the content of the assistant's turn of the fixed base. */
  function afterTurn(rest: ChatMessage[], generate: boolean): string {
    const text = render([...base, ...rest], generate, '');
    const start = text.indexOf(turn);
    if (start < 0) throw new Error('the chat template drops the text of an assistant turn');
    return text.slice(start + turn.length);
  }

  const closing = tokenizer.leadingAddedToken(afterTurn([], false));
  if (closing === null) {
    throw new Error(
      'the chat template does not close an assistant turn with a special token of this tokenizer',
    );
  }
  const observed = (observation: string): string => afterTurn([{ role: 'user', content: observation }], true);
  const frame = verbatimFrame(observed);
  return {
    endOfTurn: closing.id,
    prompt: (messages, today = '') => render(messages, true, today),
    conversation: (messages, today = '') => render(messages, false, today),
    between(observation, closed) {
      const text = frame ? frame.before + observation + frame.after : observed(observation);
      return closed ? text.slice(closing.text.length) : text;
    },
  };
}

/**
 * The text that a template writes around an observation, if it only inserts it; null if it trims or rewrites. Rendering a whole
 * conversation for each tool result would cost more than its tokens do.
 */
function verbatimFrame(render: (text: string) => string): { before: string; after: string } | null {
  const [before, after, ...more] = render(observationProbe).split(observationProbe);
  if (before === undefined || after === undefined || more.length > 0) return null;
  const awkward = ` \n${observationProbe}<think>\t</think> {"a": "<|im_end|>"}\n `;
  return render(awkward) === before + awkward + after ? { before, after } : null;
}

function parse(source: string): Template {
  try {
    // A clock must not reach the prompt: an episode is a function of its task. The library's clock cannot be overridden.
    return new Template(source.replace(/\bstrftime_now\b/g, 'task_date'));
  } catch (error) {
    throw new Error(`the chat template is no valid Jinja: ${(error as Error).message}`, { cause: error });
  }
}
