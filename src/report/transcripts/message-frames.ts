// Finds the messages in the tokens of a conversation, by the control tokens with which the run's own chat template opens them. To learn these
// tokens, a conversation of known words is rendered with template and tokenizer, and the tokens before each word are read.
import type { ChatMessage, ChatTemplate } from '../../episode/chat-template.js';
import type { DecodedPart, Tokenizer } from '../../episode/tokenizer.js';

type Role = 'system' | 'user' | 'assistant' | 'environment';

export interface RoleText {
  role: Role;
  /** Text without the tokens and names that the template puts around a message. */
  text: string;
}

interface FrameSource {
  tokenizer: Pick<Tokenizer, 'encode' | 'decodeParts'>;
  template: Pick<ChatTemplate, 'prompt' | 'conversation' | 'between'>;
}

/** The parts that open a message, from a control token on: `<|im_start|>`, `user`. */
interface Opening {
  role: Role;
  parts: DecodedPart[];
}

export interface MessageFrames {
  openings: Opening[];
  /** Texts of all control tokens that the template writes. */
  tokens: ReadonlySet<string>;
  /** How the template writes the system prompt: in a message of its own, in one that opens like a user's, or in the task's message. */
  system: 'own' | 'as user' | 'merged';
  /** What follows the last message: its closing, and the opening of the model's turn. */
  promptTail: DecodedPart[];
  observationTail: DecodedPart[];
}

const words = { system: 'longhaulsystemprobe', user: 'longhauluserprobe', assistant: 'longhaulturnprobe' };
const knownWords = Object.values(words);

export function messageFrames({ tokenizer, template }: FrameSource): MessageFrames {
  const read = (text: string): DecodedPart[] => atWords(tokenizer.decodeParts(tokenizer.encode(text)));
  const said = (...roles: ChatMessage['role'][]): ChatMessage[] =>
    roles.map((role) => ({ role, content: words[role] }));
  const prompt = read(template.prompt(said('system', 'user')));
  const observation = read(template.between(words.user, false));
  const turn = read(template.conversation(said('user', 'assistant')));
  const isMerged = !before(prompt, words.user).some(({ isControl }) => isControl);
  const plain: Context[] = [
    ['user', before(turn, words.user)],
    ['user', before(observation, words.user)],
    // It is not searched for, because the tail is cut off; but the other openings must differ from it.
    ['assistant', before(turn, words.assistant)],
  ];
  const own: Context[] = [
    ['system', before(prompt, words.system)],
    ['user', before(prompt, words.user)],
  ];
  const distinct = isMerged ? null : distinctOpenings([...plain, ...own]);
  const openings = distinct ?? distinctOpenings(plain) ?? [];
  const tokens = [prompt, observation, turn].flat().filter(({ isControl }) => isControl);
  return {
    openings: openings.filter(({ role }) => role !== 'assistant'),
    tokens: new Set(tokens.map(({ text }) => text)),
    system: distinct ? 'own' : isMerged ? 'merged' : 'as user',
    promptTail: after(prompt, words.user),
    observationTail: after(observation, words.user),
  };
}

/** `otherwise`: role of text outside all messages. */
export function messagesIn(
  parts: readonly DecodedPart[],
  { openings, tokens }: Pick<MessageFrames, 'openings' | 'tokens'>,
  otherwise: { role: Role; beforeOthers: Role },
): RoleText[] {
  const found: { role: Role | null; parts: DecodedPart[] }[] = [{ role: null, parts: [] }];
  for (let at = 0; at < parts.length;) {
    const opened = openedAt(parts, at, openings);
    if (opened) {
      found.push({ role: opened.role, parts: opened.rest === '' ? [] : [textPart(opened.rest)] });
      at = opened.end;
    } else found.at(-1)?.parts.push(parts[at++]!);
  }
  return found.flatMap(({ role, parts }) => {
    const text = contentText(parts, tokens);
    const fallback = found.length > 1 ? otherwise.beforeOthers : otherwise.role;
    return text === '' ? [] : [{ role: role ?? fallback, text }];
  });
}

/** The parts without the tail, if they end with it. */
export function withoutTail(parts: readonly DecodedPart[], tail: readonly DecodedPart[]): DecodedPart[] {
  const start = parts.length - tail.length;
  const [first, ...rest] = tail;
  const joined = parts[start];
  if (!first || !joined || !rest.every((part, at) => isSame(parts[start + 1 + at], part))) return [...parts];
  if (first.isControl) return isSame(joined, first) ? parts.slice(0, start) : [...parts];
  // The message's last text and the tail's first text form one part.
  const [text, end] = [joined.text.trimEnd(), first.text.trimEnd()];
  if (joined.isControl || !text.endsWith(end)) return [...parts];
  return [...parts.slice(0, start), textPart(text.slice(0, text.length - end.length))];
}

/** A role, and the parts before a message of this role. */
type Context = [Role, DecodedPart[]];

/** The shortest openings that tell the roles apart; null if none do. */
function distinctOpenings(contexts: readonly Context[]): Opening[] | null {
  const deepest = Math.max(...contexts.map(([, parts]) => parts.filter(({ isControl }) => isControl).length));
  for (let depth = 1; depth <= deepest; depth++) {
    const openings = contexts.flatMap(([role, parts]) => {
      const opening = openingOf(parts, depth);
      return opening.length > 0 ? [{ role, parts: opening }] : [];
    });
    const roles = new Map(openings.map((opening) => [keyOf(opening), opening]));
    // The longest come first, because a short one may be the beginning of a longer one.
    if (openings.every((opening) => roles.get(keyOf(opening))?.role === opening.role))
      return [...roles.values()].sort((a, b) => b.parts.length - a.parts.length);
  }
  return null;
}

/** The parts from the `depth`th control token from the end on. Control tokens before it are included if only a role's name lies between. */
function openingOf(parts: readonly DecodedPart[], depth: number): DecodedPart[] {
  const controls = parts.flatMap(({ isControl }, at) => (isControl ? [at] : []));
  let start = controls.at(-depth) ?? controls[0];
  if (start === undefined) return [];
  while (start >= 2 && isWord(parts[start - 1]!) && parts[start - 2]!.isControl) start -= 2;
  const opening = parts.slice(start);
  const last = opening.at(-1)!;
  if (last.isControl) return opening;
  // Of the text after the last control token, only a role's name belongs to the opening. Other text there is content that the model has read.
  const name = /^ ?([\w-]+)[ \t]*\n/.exec(last.text)?.[1];
  return [...opening.slice(0, -1), ...(name === undefined ? [] : [textPart(`${name}\n`)])];
}

interface Opened {
  role: Role;
  /** Index after the opening. */
  end: number;
  /** Text of the opening's last part that belongs to the message. */
  rest: string;
}

function openedAt(
  parts: readonly DecodedPart[],
  at: number,
  openings: readonly Opening[],
): Opened | undefined {
  if (!parts[at]!.isControl) return undefined;
  const matches = openings.flatMap((opening) => {
    const exact = matched(parts, at, opening, (word, wanted) => word === wanted);
    return exact ? [{ ...exact, role: opening.role }] : [];
  });
  if (matches[0]) return matches[0];
  // The template may write messages of its own, for example with the role `developer`.
  const others = openings.flatMap((opening) => {
    const other = matched(parts, at, opening, () => true);
    return other?.word === undefined ? [] : [{ ...other, role: roleNamed(other.word) }];
  });
  return others[0];
}

function matched(
  parts: readonly DecodedPart[],
  at: number,
  opening: Opening,
  accepts: (word: string, wanted: string) => boolean,
): { end: number; rest: string; word: string | undefined } | null {
  let [word, rest]: [string | undefined, string] = [undefined, ''];
  for (const [index, wanted] of opening.parts.entries()) {
    const part = parts[at + index];
    if (part?.isControl !== wanted.isControl) return null;
    if (wanted.isControl) {
      if (part.text !== wanted.text) return null;
      continue;
    }
    // A name at the opening's end has its own line, before the message.
    const isLast = index === opening.parts.length - 1;
    const found = isLast ? /^ ?([\w-]+)[ \t]*(?:\n|$)/.exec(part.text) : /^\s*([\w-]+)\s*$/.exec(part.text);
    if (!isWord(wanted)) {
      if (part.text.trim() !== wanted.text.trim()) return null;
      continue;
    }
    if (!found?.[1] || !accepts(found[1], wanted.text.trim())) return null;
    word ??= found[1];
    if (isLast) rest = part.text.slice(found[0].length);
  }
  return { end: at + opening.parts.length, rest, word };
}

function roleNamed(word: string): Role {
  if (word === 'system' || word === 'developer') return 'system';
  if (word === 'user') return 'user';
  return word === 'assistant' || word === 'model' ? 'assistant' : 'environment';
}

function contentText(parts: readonly DecodedPart[], tokens: ReadonlySet<string>): string {
  const isFrame = ({ text, isControl }: DecodedPart): boolean =>
    isControl ? tokens.has(text) : text.trim() === '';
  const start = parts.findIndex((part) => !isFrame(part));
  const end = parts.findLastIndex((part) => !isFrame(part));
  if (start < 0) return '';
  return parts
    .slice(start, end + 1)
    .map(({ text }) => text)
    .join('')
    .trim();
}

/** What the template writes between the known word before it and this one. */
function before(rendered: readonly DecodedPart[], word: string): DecodedPart[] {
  const end = rendered.findIndex(({ text }) => text === word);
  const earlier = rendered.slice(0, Math.max(0, end));
  return earlier.slice(earlier.findLastIndex(({ text }) => knownWords.includes(text)) + 1);
}

function after(rendered: readonly DecodedPart[], word: string): DecodedPart[] {
  const start = rendered.findLastIndex(({ text }) => text === word);
  return start < 0 ? [] : rendered.slice(start + 1);
}

/** The parts, also divided at the known words. */
function atWords(parts: readonly DecodedPart[]): DecodedPart[] {
  const divide = new RegExp(`(${knownWords.join('|')})`);
  return parts.flatMap((part) =>
    part.isControl
      ? [part]
      : part.text
          .split(divide)
          .filter((text) => text !== '')
          .map(textPart),
  );
}

function keyOf({ parts }: Opening): string {
  return JSON.stringify(parts.map(({ text, isControl }) => [text.trim(), isControl]));
}

function isSame(part: DecodedPart | undefined, other: DecodedPart): boolean {
  return part?.isControl === other.isControl && part.text.trim() === other.text.trim();
}

function isWord({ text, isControl }: DecodedPart): boolean {
  return !isControl && /^\s*[\w-]+\s*$/.test(text);
}

function textPart(text: string): DecodedPart {
  return { text, isControl: false };
}
