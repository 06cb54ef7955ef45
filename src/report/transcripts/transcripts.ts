// Turns episodes into conversations that a person can read.
import { isPass } from '../../rl/pass.js';
import { writeJson } from '../../base/json.js';
import { toolFormat } from '../../episode/tool-formats/tool-format.js';
import type { ToolFormatName } from '../../spec/tool-format-names.js';
import type { Tokenizer } from '../../episode/tokenizer.js';
import type { EpisodeRecord } from '../../spec/records/episode.js';
import type { ToolCall } from '../../spec/records/task.js';

type Role = 'system' | 'user' | 'assistant' | 'environment';

export interface Message {
  role: Role;
  /** Text without the marks of the chat template. */
  text: string;
}

export type Verdict = 'pass' | 'fail' | 'unknown';

export interface Transcript {
  task_key: string;
  env_key: string;
  slot: number;
  sample: number;
  verdict: Verdict;
  reason: string;
  stop_reason: string;
  turns: number;
  /** The task's request: the last message of the prompt. */
  request: string;
  /** How the run's tool calls are read. */
  format: ToolFormatName;
  messages: Message[];
}

/** Decodes token ids, so that text which looks like a special token is not taken for one. */
export interface TranscriptCoder {
  tokenizer: Pick<Tokenizer, 'decodeQuoted' | 'unquote'>;
  format: ToolFormatName;
}

export function toTranscript(episode: EpisodeRecord, { tokenizer, format }: TranscriptCoder): Transcript {
  const decode = (tokens: number[]): string => tokenizer.decodeQuoted(tokens);
  const messages = messagesOf(decode(episode.tokens.slice(0, episode.prompt_length)), 'user');
  const request = messages.findLast((message) => message.role === 'user')?.text ?? '';
  const observe = (from: number, to: number): void => {
    for (const { text } of messagesOf(decode(episode.tokens.slice(from, to)), 'environment'))
      messages.push({ role: 'environment', text });
  };
  let position = episode.prompt_length;
  for (const turn of episode.turns) {
    if (turn.start > position) observe(position, turn.start);
    messages.push({
      role: 'assistant',
      text: withoutMarks(decode(episode.tokens.slice(turn.start, turn.end))),
    });
    position = turn.end;
  }
  if (position < episode.tokens.length) observe(position, episode.tokens.length);
  const { outcome } = episode;
  return {
    task_key: episode.task_key,
    env_key: episode.env_key,
    slot: episode.slot,
    sample: episode.sample,
    verdict: verdictOf(episode),
    reason:
      outcome.status === 'unknown' ? reasonOf(outcome.reason, episode) : gradeOf(outcome.value, episode),
    stop_reason: episode.stop_reason,
    turns: episode.turns.length,
    request: tokenizer.unquote(request),
    format,
    messages: messages.map(({ role, text }) => ({ role, text: tokenizer.unquote(text) })),
  };
}

/** Why an outcome is unknown, with the text of the failure if the record has it. */
export function reasonOf(reason: string, { observed: { failure } }: EpisodeRecord): string {
  return failure === undefined ? reason : `${reason}: ${failure}`;
}

/** The grade, with the grader's explanation if the record has one: `reward 0: issues ISS-7Q2K: assignee is "isaac", should be "marco"`. */
function gradeOf(value: number, { observed: { explanation } }: EpisodeRecord): string {
  return explanation === undefined ? `reward ${value}` : `reward ${value}: ${explanation}`;
}

export function verdictOf({ outcome }: EpisodeRecord): Verdict {
  if (outcome.status === 'unknown') return 'unknown';
  return isPass(outcome.value) ? 'pass' : 'fail';
}

/** Splits text where the template (ChatML, as in Qwen models) opens a message. `otherwise`: role of text before the first mark. */
function messagesOf(text: string, otherwise: Role): Message[] {
  const messages: Message[] = [];
  const marked = /<\|im_start\|>([a-z]+)\n([\s\S]*?)(?=<\|im_start\|>|$)/g;
  for (const [, name = '', body = ''] of text.matchAll(marked)) {
    const role: Role = name === 'system' || name === 'user' || name === 'assistant' ? name : 'environment';
    const plain = withoutMarks(body);
    // Skip an empty message: at the end of a prompt the template opens the assistant's turn.
    if (plain !== '') messages.push({ role, text: plain });
  }
  if (messages.length > 0 || text.includes('<|im_start|>')) return messages;
  const plain = withoutMarks(text);
  return plain === '' ? [] : [{ role: otherwise, text: plain }];
}

function withoutMarks(text: string): string {
  return text.replace(/<\|[A-Za-z0-9_]+\|>/g, '').trim();
}

/** Up to `each` episodes of every verdict, spread over environments. Failures come first, because they teach more. */
export function pickTranscripts(episodes: EpisodeRecord[], each: number): EpisodeRecord[] {
  const verdicts: Verdict[] = ['fail', 'unknown', 'pass'];
  return verdicts.flatMap((verdict) => {
    const candidates = episodes.filter((episode) => verdictOf(episode) === verdict);
    const byEnvironment = new Map<string, EpisodeRecord[]>();
    for (const episode of candidates) {
      byEnvironment.set(episode.env_key, [...(byEnvironment.get(episode.env_key) ?? []), episode]);
    }
    const rows = [...byEnvironment.values()];
    const picked: EpisodeRecord[] = [];
    for (let index = 0; picked.length < Math.min(each, candidates.length); index++) {
      for (const row of rows) {
        const episode = row[index];
        if (episode && picked.length < each) picked.push(episode);
      }
    }
    return picked;
  });
}

/** A part of the model's turn: text, a call, or the end. */
export type Segment =
  | { kind: 'text'; text: string }
  | { kind: 'call'; name: string; arguments: [name: string, value: string][] }
  /** A tool-call tag without a valid call. */
  | { kind: 'malformed'; text: string }
  | { kind: 'done' };

/** `format`: name of the tool format that the run reads. */
export function segmentsOf(text: string, format: ToolFormatName): Segment[] {
  return toolFormat(format)
    .piecesOf(text, { opensThinking: false, tools: [] })
    .flatMap((piece): Segment[] => {
      if (piece.kind === 'call') return [callSegment(piece.call)];
      if (piece.kind === 'malformed') return [{ kind: 'malformed', text: withoutTags(piece.text) }];
      return piece.kind === 'thinking' ? textSegments(piece.text) : saidSegments(piece.text);
    });
}

function saidSegments(text: string): Segment[] {
  return text
    .split(/(<done>|\[done\])/i)
    .flatMap((part, index) => (index % 2 === 1 ? [{ kind: 'done' as const }] : textSegments(part)));
}

function textSegments(text: string): Segment[] {
  return text.trim() === '' ? [] : [{ kind: 'text', text: text.trim() }];
}

function callSegment({ name, arguments: given }: ToolCall): Segment {
  return {
    kind: 'call',
    name,
    arguments: Object.entries(given).map(([key, value]) => [key, writeJson(value)]),
  };
}

function withoutTags(text: string): string {
  return text.replace(/^<(tool_call|function_call)>|<\/(tool_call|function_call)>$/g, '').trim();
}

/** Shows JSON with indentation, also if words precede it (`result: {"a":1}`). Other text is returned unchanged. */
export function readableResult(text: string): string {
  const begin = text.search(/[{[]/);
  if (begin < 0) return text;
  try {
    const value: unknown = JSON.parse(text.slice(begin));
    const pretty = JSON.stringify(value, null, 1);
    return text.slice(0, begin) + (pretty.length < 90 ? pretty.replace(/\n\s*/g, ' ') : indented(value));
  } catch {
    return text;
  }
}

/** Puts each object of a list on one line, for people. */
function indented(value: unknown): string {
  const rows = (list: unknown[], indent: string): string =>
    `[\n${list.map((one) => `${indent}  ${JSON.stringify(one)}`).join(',\n')}\n${indent}]`;
  if (Array.isArray(value)) return rows(value, '');
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const members = Object.entries(value).map(([name, one]) => {
    const text = Array.isArray(one) && one.length > 0 ? rows(one as unknown[], '  ') : JSON.stringify(one);
    return `  ${JSON.stringify(name)}: ${text}`;
  });
  return `{\n${members.join(',\n')}\n}`;
}
