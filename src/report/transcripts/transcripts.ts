// Turns episodes into conversations that a person can read: the messages by the run's chat template, and each turn of the model as the run
// has read it.
import { isPass } from '../../rl/episode-reward.js';
import { isObject, parseJson, writeJson } from '../../base/json.js';
import { type TextCoder, turnContext, turnText } from '../../episode/conversation.js';
import type { ToolFormatName } from '../../spec/tool-format-names.js';
import type { EpisodeRecord } from '../../spec/records/episode.js';
import type { Task, ToolSpec } from '../../spec/records/task.js';
import {
  messageFrames,
  type MessageFrames,
  messagesIn,
  type RoleText,
  withoutTail,
} from './message-frames.js';
import { promptTools } from './prompt-tools.js';
import { type Segment, segmentsOf } from './turn-segments.js';

export type Message =
  | { role: 'system' | 'user' | 'environment'; text: string }
  /** `text`: the turn as the run has read it. */
  | { role: 'assistant'; text: string; segments: Segment[] };

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
  /** The format in which the run's tool calls are read. */
  format: ToolFormatName;
  messages: Message[];
}

/** The part of a run's data by which its episodes are read. */
export interface TranscriptCoder extends TextCoder {
  /** Tools by environment, if the run has asked for them. */
  tools: Readonly<Record<string, readonly ToolSpec[]>>;
  taskByKey: ReadonlyMap<string, Pick<Task, 'prompt'>>;
}

/** Returns a function that turns one of the run's episodes into a transcript. */
export function transcriptReader(coder: TranscriptCoder): (episode: EpisodeRecord) => Transcript {
  let known: ReturnType<typeof messageFrames> | undefined;
  const toolsOf = promptToolsMemo(coder);
  return (episode) => {
    const frames = (known ??= messageFrames(coder));
    const { tokens, prompt_length, outcome, env_key, task_key } = episode;
    const prompt = promptMessages(coder, frames, episode);
    const system = prompt.filter(({ role }) => role === 'system').map(({ text }) => text);
    const called = episode.turns.flatMap(({ tool }) => tool ?? []);
    const context = turnContext(
      coder,
      toolsOf(system.join('\n') || (prompt[0]?.text ?? ''), env_key, called),
    );
    const messages: Message[] = prompt.map(asMessage);
    const observe = (from: number, to: number): void => {
      const parts = withoutTail(coder.tokenizer.decodeParts(tokens.slice(from, to)), frames.observationTail);
      for (const { text } of messagesIn(parts, frames, { role: 'environment', beforeOthers: 'environment' }))
        messages.push({ role: 'environment', text });
    };
    let position = prompt_length;
    for (const { start, end } of episode.turns) {
      if (start > position) observe(position, start);
      const sampled = tokens.slice(start, end);
      const text = turnText(coder, sampled);
      const stray = strayTokens(coder, sampled);
      const segments = segmentsOf(text, coder.format, context, stray);
      messages.push({ role: 'assistant', text: text.trim(), segments });
      position = end;
    }
    if (position < tokens.length) observe(position, tokens.length);
    return {
      ...{ task_key, env_key, slot: episode.slot, sample: episode.sample },
      verdict: verdictOf(episode),
      reason:
        outcome.status === 'unknown' ? reasonOf(outcome.reason, episode) : gradeOf(outcome.value, episode),
      stop_reason: episode.stop_reason,
      turns: episode.turns.length,
      request: prompt.findLast(({ role }) => role === 'user')?.text ?? '',
      format: coder.format.name,
      messages,
    };
  };
}

function promptMessages(
  { tokenizer, taskByKey }: TranscriptCoder,
  frames: MessageFrames,
  { tokens, prompt_length, task_key }: EpisodeRecord,
): RoleText[] {
  const parts = withoutTail(tokenizer.decodeParts(tokens.slice(0, prompt_length)), frames.promptTail);
  const messages = messagesIn(parts, frames, { role: 'user', beforeOthers: 'system' });
  const [first, ...others] = messages;
  if (!first || first.role !== 'user') return messages;
  const { text } = first;
  if (frames.system === 'as user' && others.length > 0) return [{ role: 'system', text }, ...others];
  const task = taskByKey.get(task_key)?.prompt.trim() ?? '';
  const begin = task === '' ? 0 : text.lastIndexOf(task);
  if (frames.system !== 'merged' || others.length > 0 || begin <= 0) return messages;
  return [
    { role: 'system', text: text.slice(0, begin).trim() },
    { role: 'user', text: text.slice(begin) },
  ];
}

function asMessage({ role, text }: RoleText): Message {
  return role === 'assistant' ? { role, text, segments: [{ kind: 'text', text }] } : { role, text };
}

/** Cached, because most prompts of an environment list the same tools. */
function promptToolsMemo({ tools }: TranscriptCoder) {
  const memo = new Map<string, ToolSpec[]>();
  return (system: string, env_key: string, called: readonly string[]): ToolSpec[] => {
    const key = JSON.stringify([system, env_key, [...new Set(called)]]);
    const known = memo.get(key);
    if (known) return known;
    if (memo.size >= rememberedPrompts) memo.clear();
    const read = promptTools(system, tools[env_key] ?? [], called);
    memo.set(key, read);
    return read;
  };
}

const rememberedPrompts = 64;

/** Texts of the turn's control tokens that belong to no call, such as one that opens a message. They are not shown. */
function strayTokens({ tokenizer, format }: TextCoder, sampled: readonly number[]): string[] {
  const meant: string[] = [...format.marks, ...format.stops];
  const texts = tokenizer.decodeParts(sampled).flatMap(({ text, isControl }) => (isControl ? [text] : []));
  return [...new Set(texts)].filter((text) => !meant.includes(text));
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

/** Shows JSON with indentation, also if words precede it (`result: {"a":1}`). Other text is returned unchanged. */
export function readableResult(text: string): string {
  const begin = text.search(/[{[]/);
  if (begin < 0) return text;
  try {
    const value = parseJson(text.slice(begin));
    const pretty = writeJson(value, 1);
    return text.slice(0, begin) + (pretty.length < 90 ? pretty.replace(/\n\s*/g, ' ') : indented(value));
  } catch {
    return text;
  }
}

/** Puts each object of a list on one line, for people. */
function indented(value: unknown): string {
  const rows = (list: unknown[], indent: string): string =>
    `[\n${list.map((one) => `${indent}  ${writeJson(one)}`).join(',\n')}\n${indent}]`;
  if (Array.isArray(value)) return rows(value, '');
  if (!isObject(value)) return writeJson(value);
  const members = Object.entries(value).map(([name, one]) => {
    const text = Array.isArray(one) && one.length > 0 ? rows(one as unknown[], '  ') : writeJson(one);
    return `  ${writeJson(name)}: ${text}`;
  });
  return `{\n${members.join(',\n')}\n}`;
}
