// One episode: prompt, turns, grade.
// Invariants: generated ids are kept verbatim; an infrastructure failure is never a reward; what the signal cuts off
// leaves nothing open behind it. Nothing here depends on a clock, save how long an environment that is down is waited for.
import { setTimeout as sleep } from 'node:timers/promises';
import type { GenerateResult, PolicyEngine, SamplingKey } from '../engine/policy-engine.js';
import {
  type Environment,
  type EnvironmentBackend,
  EnvironmentError,
  type Grade,
} from '../environments/environment.js';
import type { Digest, EpisodeRecord, SamplingPlan, StopReason, TurnRecord } from '../spec/records.js';
import type { Task } from '../spec/task.js';
import { observationTokens, promptTokens, stopTokens, type TextCoder } from './conversation.js';
import { malformedCallObservation, noCallObservation, resultObservation } from './observation.js';
import { finalAnswerOf, parseToolCall, saysDone } from './tool-call-parser.js';

export interface EpisodeDeps extends TextCoder {
  engine: Pick<PolicyEngine, 'generate'>;
  backend: EnvironmentBackend;
}

export interface EpisodeRequest {
  task: Task;
  sampling: SamplingPlan;
  key: SamplingKey;
  /** State that samples, and the step after which it stood. */
  state: Digest;
  policyStep: number;
  /** Seed of the environment's world and faults; shared by a group. */
  episodeSeed: number;
  episodeId: string;
  /** How long an environment that is down is waited for. */
  maxWaitMs: number;
  /** Called again and again while it is: waiting with a deadline is no standstill. */
  onWait?: () => void;
  /** Awaited before the first token is sampled; what it throws ends the episode. */
  beforeSampling?: () => Promise<void>;
}

/** The fields of `EpisodeRecord` that playing decides. A transcript ends with a sampled token. */
export interface EpisodePlay extends Pick<
  EpisodeRecord,
  'outcome' | 'stop_reason' | 'tokens' | 'prompt_length' | 'turns' | 'logprobs' | 'metrics'
> {
  /** Infrastructure failures by reason, charged or not. */
  failures: Record<string, number>;
}

/** The environment stayed down longer than `maxWaitMs` (R25). */
export class EnvironmentsUnavailable extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'EnvironmentsUnavailable';
  }
}

/** Reason of an unknown outcome, see `PromptTooLong`. */
export const promptTooLong = 'prompt_too_long';

/** The task's prompt leaves no room for a turn: it can be neither played nor graded. */
class PromptTooLong extends Error {}

/** Deaths of the server under the same call that are not charged. After them the episode is played alone: then the next
 * one is its doing (R25). */
const unchargedDeaths = 2;
const minPauseMs = 100;
const maxPauseMs = 2000;

/** Where a playing stands; a failure is charged to, and tried again at, this place. */
type Place = 'open' | 'grade' | number;

interface Playing {
  tokens: number[];
  prompt_length: number;
  turns: TurnRecord[];
  logprobs: number[];
  metrics: EpisodeRecord['metrics'];
  place: Place;
}

/**
 * Plays until the outcome is terminal. Throws the signal's reason when it aborts, `EnvironmentsUnavailable` when the
 * environment stays down, and the engine's errors as they are.
 */
export async function playEpisode(
  deps: EpisodeDeps,
  request: EpisodeRequest,
  signal: AbortSignal,
): Promise<EpisodePlay> {
  const { max_episode_failures: maxFailures } = request.sampling;
  const failures: Record<string, number> = {};
  const tries = new Map<Place, number>();
  const deaths = new Map<Place, number>();
  let charged = 0;
  let earlier: Playing | null = null;
  const outage = outageClock(deps.backend, request);
  for (;;) {
    signal.throwIfAborted();
    const playing = emptyPlaying();
    try {
      const { grade, stop_reason } = await playThrough(
        deps,
        request,
        playing,
        earlier,
        tries,
        [...deaths.values()].some((count) => count >= unchargedDeaths),
        outage.answered,
        signal,
      );
      return { ...transcriptOf(playing), outcome: grade.outcome, stop_reason, failures };
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof PromptTooLong) {
        const outcome = { status: 'unknown' as const, reason: promptTooLong, failures: charged };
        return { ...transcriptOf(playing), outcome, stop_reason: 'unknown', failures };
      }
      if (!(error instanceof EnvironmentError)) throw error;
      failures[error.reason] = (failures[error.reason] ?? 0) + 1;
      tries.set(playing.place, tryAt(tries, playing.place) + 1);
      if (playing.turns.length >= (earlier?.turns.length ?? 0)) earlier = playing;
      if (isCharged(error, playing.place, deaths)) {
        charged += 1;
        if (charged >= maxFailures) {
          const outcome = { status: 'unknown' as const, reason: error.reason, failures: charged };
          return { ...transcriptOf(playing), outcome, stop_reason: 'unknown', failures };
        }
      } else {
        await outage.waitUntilHealthy(error, signal);
      }
    }
  }
}

function isCharged(error: EnvironmentError, place: Place, deaths: Map<Place, number>): boolean {
  if (error.kind === 'failed') return true;
  // Not being able to connect says nothing about this episode; a server that dies on its call may.
  if (error.reason === 'connect' || error.reason === 'capacity') return false;
  const count = (deaths.get(place) ?? 0) + 1;
  deaths.set(place, count);
  return count > unchargedDeaths;
}

/** One playing, from a fresh session to its grade. Fills `playing` as it goes. */
async function playThrough(
  deps: EpisodeDeps,
  request: EpisodeRequest,
  playing: Playing,
  earlier: Playing | null,
  tries: ReadonlyMap<Place, number>,
  alone: boolean,
  answered: () => void,
  signal: AbortSignal,
): Promise<{ grade: Grade; stop_reason: StopReason }> {
  const { task, sampling } = request;
  const { episodeSeed: seed, episodeId } = request;
  const tryNumber = tryAt(tries, 'open');
  const environment = await deps.backend.open(task, { seed, episodeId, tryNumber, alone }, signal);
  try {
    answered();
    const prompt = await promptTokens(deps, { ...task, tools: environment.tools, sampling });
    const { max_input_length, max_sequence_length } = sampling;
    if (prompt.length > max_input_length || prompt.length >= max_sequence_length) throw new PromptTooLong();
    playing.tokens = [...prompt];
    playing.prompt_length = prompt.length;
    if (!earlier?.turns.length) await request.beforeSampling?.();
    for (;;) {
      const turn = await takeTurn(deps, request, playing, earlier, environment, tries, signal);
      answered();
      const stop_reason = turn.done ? 'done' : await continueOrStop(deps, request, playing, turn.observation);
      if (stop_reason === null) continue;
      playing.place = 'grade';
      const finalAnswer = finalAnswerOf(turn.text);
      const grading = environment.grade({ finalAnswer, tryNumber: tryAt(tries, 'grade') });
      return { grade: await abortable(grading, signal), stop_reason };
    }
  } finally {
    await environment.close();
  }
}

interface Turn {
  text: string;
  done: boolean;
  observation: string;
}

async function takeTurn(
  deps: EpisodeDeps,
  request: EpisodeRequest,
  playing: Playing,
  earlier: Playing | null,
  environment: Environment,
  tries: ReadonlyMap<Place, number>,
  signal: AbortSignal,
): Promise<Turn> {
  const { sampling } = request;
  const index = playing.turns.length;
  const sampled = sampledEarlier(playing, earlier) ?? (await sample(deps, request, playing.tokens, signal));
  const start = playing.tokens.length;
  playing.tokens.push(...sampled.tokens);
  playing.logprobs.push(...sampled.logprobs);
  const record: TurnRecord = { policy_step: request.policyStep, start, end: playing.tokens.length };
  playing.turns.push(record);
  playing.metrics.turns += 1;

  const text = deps.tokenizer.decode(sampled.tokens);
  const done = saysDone(text);
  const parsed = parseToolCall(text);
  switch (parsed.kind) {
    case 'call': {
      record.tool = parsed.call.name;
      playing.place = index;
      playing.metrics.tool_calls += 1;
      const calling = environment.callTool(parsed.call, { turn: index, tryNumber: tryAt(tries, index) });
      const result = await abortable(calling, signal);
      if (result.isError) markError(playing, record);
      return { text, done, observation: resultObservation(result, sampling.max_output_chars) };
    }
    case 'malformed':
      markError(playing, record);
      return { text, done, observation: malformedCallObservation(parsed.problem) };
    case 'none':
      return { text, done, observation: noCallObservation() };
  }
}

function markError(playing: Playing, record: TurnRecord): void {
  record.error = true;
  playing.metrics.tool_errors += 1;
}

/** Appends the observation and answers null, or says why there is no next turn. */
async function continueOrStop(
  deps: EpisodeDeps,
  { sampling }: EpisodeRequest,
  playing: Playing,
  observation: string,
): Promise<'max_turns' | 'length' | null> {
  if (playing.turns.length >= sampling.max_turns) return 'max_turns';
  const added = await observationTokens(deps, observation, playing.tokens.at(-1));
  const length = playing.tokens.length + added.length;
  if (length > sampling.max_input_length || length >= sampling.max_sequence_length) return 'length';
  for (const token of added) playing.tokens.push(token);
  return null;
}

function sample(
  deps: EpisodeDeps,
  { key, state, sampling }: EpisodeRequest,
  tokens: readonly number[],
  signal: AbortSignal,
): Promise<GenerateResult> {
  const max_new_tokens = Math.min(sampling.max_generate_length, sampling.max_sequence_length - tokens.length);
  const stop_tokens = stopTokens(deps);
  return deps.engine.generate(
    { state, tokens, key, temperature: sampling.temperature, max_new_tokens, stop_tokens },
    signal,
  );
}

/** What an earlier playing sampled after the very same tokens: the same keys would give it again. */
function sampledEarlier(playing: Playing, earlier: Playing | null): GenerateResult | null {
  const turn = earlier?.turns[playing.turns.length];
  if (!earlier || !turn || turn.start !== playing.tokens.length) return null;
  if (!playing.tokens.every((token, index) => token === earlier.tokens[index])) return null;
  const first = playing.logprobs.length;
  return {
    tokens: earlier.tokens.slice(turn.start, turn.end),
    logprobs: earlier.logprobs.slice(first, first + turn.end - turn.start),
    finish: 'stop',
  };
}

function emptyPlaying(): Playing {
  const metrics = { turns: 0, tool_calls: 0, tool_errors: 0 };
  return { tokens: [], prompt_length: 0, turns: [], logprobs: [], metrics, place: 'open' };
}

/** Without what followed the last sampled token. */
function transcriptOf({ tokens, prompt_length, turns, logprobs, metrics }: Playing) {
  return {
    tokens: tokens.slice(0, turns.at(-1)?.end ?? prompt_length),
    prompt_length,
    turns,
    logprobs,
    metrics,
  };
}

function tryAt(tries: ReadonlyMap<Place, number>, place: Place): number {
  return tries.get(place) ?? 0;
}

/** How long the environment has been down, from its first failure since it last answered. */
function outageClock(backend: EnvironmentBackend, { task, maxWaitMs, onWait }: EpisodeRequest) {
  let downSince: number | null = null;
  let pauseMs = minPauseMs;
  return {
    answered(): void {
      downSince = null;
      pauseMs = minPauseMs;
    },
    async waitUntilHealthy(cause: EnvironmentError, signal: AbortSignal): Promise<void> {
      downSince ??= Date.now();
      for (;;) {
        const leftMs = downSince + maxWaitMs - Date.now();
        if (leftMs <= 0) {
          throw new EnvironmentsUnavailable(
            `The environment of ${task.env_key} has been down for ${Math.round(maxWaitMs / 1000)} s ` +
              `(${cause.message}). Start it again, then resume the run`,
            { cause },
          );
        }
        onWait?.();
        await abortable(sleep(Math.min(pauseMs, leftMs)), signal);
        pauseMs = Math.min(maxPauseMs, pauseMs * 2);
        if (await abortable(backend.healthy(), signal)) return;
      }
    },
  };
}

/** The promise's result, or the signal's reason as soon as it aborts. */
async function abortable<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  let onAbort = (): void => undefined;
  const aborted = new Promise<never>((_, reject) => {
    onAbort = () => reject(signal.reason as Error);
    signal.addEventListener('abort', onAbort, { once: true });
    if (signal.aborted) onAbort();
  });
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener('abort', onAbort);
    // The loser of the race must not become an unhandled rejection.
    promise.catch(() => undefined);
    aborted.catch(() => undefined);
  }
}
