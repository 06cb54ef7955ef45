// Writes episodes to a store from their texts: each token stands for a piece of text.
import { coderOf } from './recorded-run.js';
import {
  readReportEpisodes,
  type EpisodeReading,
  type ReadEpisodes,
} from '../../src/report/report-episodes.js';
import type { RunHistory } from '../../src/report/history/run-history.js';
import type { EpisodeRecord, Outcome, StopReason } from '../../src/spec/records/episode.js';
import { episodeKey, evaluationEpisodeKey } from '../../src/store/record-keys.js';
import type { ObjectStore } from '../../src/store/objects/object-store.js';
import { encodeRecord } from '../../src/store/records/record-codec.js';
import { recordsOfAllKinds } from '../store/fixtures.js';

export interface SaidTurn {
  says: string;
  /** Tool that the turn calls. */
  tool?: string;
  /** The answer to the turn, which the model reads next. No record holds the answer to the last turn. */
  answer?: string;
  error?: true;
}

export interface SaidEpisode {
  request: string;
  turns: SaidTurn[];
  outcome: Outcome;
  stop_reason?: StopReason;
  env_key?: string;
  task_key?: string;
}

export const passed: Outcome = { status: 'graded', value: 1 };
export const failed: Outcome = { status: 'graded', value: 0 };

export const callOf = (name: string, args: object = {}): string =>
  `<tool_call>${JSON.stringify({ name, arguments: args })}</tool_call>`;

const texts: string[] = [];
const tokenOf = (text: string): number => texts.push(text) - 1;
export const decode = (tokens: number[]): string => tokens.map((token) => texts[token] ?? '').join('');

export function saidEpisode(said: SaidEpisode, place: { slot: number; sample: number }): EpisodeRecord {
  const {
    request,
    outcome,
    stop_reason = 'done',
    env_key = 'tracker',
    task_key = `task-${place.slot}`,
  } = said;
  const tokens = [
    '<|im_start|>system\nCall one tool a turn.<|im_end|>\n',
    `<|im_start|>user\n${request}<|im_end|>\n`,
    '<|im_start|>assistant\n',
  ].map(tokenOf);
  const prompt_length = tokens.length;
  const turns: EpisodeRecord['turns'] = [];
  for (const [index, { says, tool, answer = '', error }] of said.turns.entries()) {
    const start = tokens.push(tokenOf(says)) - 1;
    turns.push({
      ...{ policy_step: 0, start, end: start + 1 },
      ...(tool === undefined ? {} : { tool }),
      ...(error === undefined ? {} : { error }),
    });
    if (index < said.turns.length - 1)
      tokens.push(tokenOf(`<|im_end|>\n<|im_start|>user\n${answer}<|im_end|>\n<|im_start|>assistant\n`));
  }
  return {
    ...recordsOfAllKinds().episode,
    ...{ ...place, env_key, task_key, outcome, stop_reason, tokens, prompt_length, turns },
    logprobs: turns.map(() => -0.5),
    metrics: {
      turns: turns.length,
      tool_calls: turns.filter(({ tool }) => tool !== undefined).length,
      tool_errors: turns.filter(({ error }) => error).length,
    },
  };
}

/** Each episode gets its own slot, as sample 0. */
export async function recordEvaluated(
  store: ObjectStore,
  { evaluations }: RunHistory,
  said: readonly SaidEpisode[],
): Promise<void> {
  const { state, suite } = evaluations.at(-1)!.result;
  for (const [slot, one] of said.entries()) {
    const record = saidEpisode(one, { slot, sample: 0 });
    await store.create(evaluationEpisodeKey(state, suite, slot, 0), await encodeRecord('episode', record));
  }
}

/** `groups[slot][sample]`. */
export async function recordTrained(
  store: ObjectStore,
  run: string,
  step: number,
  groups: readonly (readonly SaidEpisode[])[],
): Promise<void> {
  for (const [slot, samples] of groups.entries())
    for (const [sample, one] of samples.entries()) {
      const record = saidEpisode(one, { slot, sample });
      await store.create(episodeKey(run, step, slot, sample), await encodeRecord('episode', record));
    }
}

/** `files`: receives the files beside the page. */
export function readEpisodes(
  store: ObjectStore,
  history: RunHistory,
  files: Map<string, string> = new Map(),
  options: Partial<EpisodeReading> = {},
): Promise<ReadEpisodes> {
  return readReportEpisodes(store, history, {
    ...{ limit: 10_000, coder: coderOf(decode), folder: 'transcripts' },
    keep: (name, text) => Promise.resolve(void files.set(name, text)),
    ...options,
  });
}
