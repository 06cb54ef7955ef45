// One episode: prompt, turns, grade.
//
// Invariants: generated ids are kept verbatim. An infrastructure failure never becomes a reward. An aborted episode leaves nothing open.
// Only the wait for an environment that is down depends on a clock. Each sampled turn is remembered under the transcript before it, in this
// process and in the journal, so another play with the same transcript does not sample it again.
import { isDeepStrictEqual } from 'node:util';
import type { PolicyEngine, SamplingKey } from '../engine/policy-engine.js';
import { abortable } from '../base/abortable.js';
import {
  type Environment,
  type EnvironmentBackend,
  EnvironmentError,
  type Grade,
} from '../environments/environment.js';
import type { Digest, SamplingPlan } from '../spec/records/parts.js';
import type { EpisodeRecord, StopReason, TurnRecord } from '../spec/records/episode.js';
import type { Task, ToolCall } from '../spec/records/task.js';
import {
  observationTokens,
  promptOf,
  promptTokens,
  stopTokens,
  type TextCoder,
  turnContext,
  turnText,
} from './conversation.js';
import { FailureLedger, failureOf } from './failure-ledger.js';
import { outageClock, type OutageOptions } from './outage-clock.js';
import {
  malformedCallObservation,
  noCallObservation,
  otherCallsNote,
  resultObservation,
} from './observation.js';
import { actionOf } from './turn-action.js';
import {
  type JournaledCall,
  type JournaledPast,
  type Place,
  type SampledTurn,
  type ShownResult,
  shownResult,
  transcriptDigest,
  type TurnJournal,
  unkeptJournal,
} from './turn-journal.js';

export interface EpisodeDeps extends TextCoder {
  engine: Pick<PolicyEngine, 'generate'>;
  backend: EnvironmentBackend;
}

export interface EpisodeRequest extends OutageOptions {
  task: Task;
  sampling: SamplingPlan;
  key: SamplingKey;
  /** The sampling state, and its step. */
  state: Digest;
  policyStep: number;
  /** Seed of the environment's world and faults; shared by a group. */
  episodeSeed: number;
  episodeId: string;
  /** Id of the run; absent if the episode belongs to none. */
  run?: string;
  /** Called repeatedly while a world is made. */
  onOpening?: (reason: string) => void;
  /** Awaited before the first token is sampled. An error that it throws ends the episode. */
  beforeSampling?: () => Promise<void>;
  /** Without a journal, the next attempt plays the episode from the start. */
  journal?: TurnJournal;
}

/** The fields of `EpisodeRecord` that result from playing. The transcript ends with a sampled token. */
export interface EpisodePlay extends Pick<
  EpisodeRecord,
  'outcome' | 'stop_reason' | 'tokens' | 'prompt_length' | 'turns' | 'logprobs' | 'metrics'
> {
  /** Number of infrastructure failures by reason, whether charged to the episode or not. */
  failures: Record<string, number>;
  /** Message of the failure that made the outcome unknown; absent if the outcome is graded. */
  failure?: string;
  /** The grader's explanation, for people; absent if it gives none. The model never sees it. */
  explanation?: string;
}

/** Reason of the unknown outcome after `PromptTooLong`. */
export const promptTooLong = 'prompt_too_long';

/** The task's prompt leaves no room for a turn, so the task cannot be played. */
class PromptTooLong extends Error {
  constructor(length: number, { max_input_length, max_sequence_length }: SamplingPlan) {
    super(
      `the prompt has ${length} tokens; max_input_length is ${max_input_length}, max_sequence_length ${max_sequence_length}`,
    );
  }
}

/** Thrown if the earlier attempt's world has received other calls than this play makes. */
class OtherWorld extends Error {}

/** What is kept from one play of the episode to the next. */
interface Course {
  journal: TurnJournal;
  ledger: FailureLedger;
  sampled: Map<string, SampledTurn>;
  /** The world that an earlier attempt left open; null once this attempt has tried it. */
  world: JournaledPast['world'];
  /** Number of worlds that were opened for this episode, also by earlier attempts on this node. */
  openings: number;
  hasSampled: boolean;
}

interface Playing {
  tokens: number[];
  prompt_length: number;
  turns: TurnRecord[];
  logprobs: number[];
  metrics: EpisodeRecord['metrics'];
  place: Place;
  /** Calls that an earlier attempt has sent to the attached world, by turn. */
  sent: ReadonlyMap<number, JournaledCall>;
}

/**
 * Plays the episode until its outcome is terminal. Throws the signal's reason when it aborts, `EnvironmentsUnavailable` if the environment
 * stays down, and the engine's errors.
 */
export async function playEpisode(
  deps: EpisodeDeps,
  request: EpisodeRequest,
  signal: AbortSignal,
): Promise<EpisodePlay> {
  const { max_episode_failures: maxFailures } = request.sampling;
  const journal = request.journal ?? unkeptJournal();
  const { sampled, failures: past, world, openings } = journal.past;
  const ledger = new FailureLedger(past);
  const course: Course = { journal, ledger, sampled, world, openings, hasSampled: false };
  const { failures } = ledger;
  const outage = outageClock(deps.backend, request.task.env_key, request);
  for (;;) {
    signal.throwIfAborted();
    const playing = emptyPlaying();
    try {
      const { grade, stop_reason } = await playThrough(
        deps,
        request,
        playing,
        course,
        outage.answered,
        signal,
      );
      const { outcome, explanation } = grade;
      const words = explanation === '' ? {} : { explanation };
      return { ...transcriptOf(playing), outcome, stop_reason, failures, ...words };
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof OtherWorld) continue;
      if (error instanceof PromptTooLong) {
        const outcome = { status: 'unknown' as const, reason: promptTooLong, failures: ledger.charged };
        const failure = error.message;
        return { ...transcriptOf(playing), outcome, stop_reason: 'unknown', failures, failure };
      }
      if (!(error instanceof EnvironmentError)) throw error;
      const failure = failureOf(error, playing.place);
      const isCharged = ledger.add(failure);
      if (isCharged && ledger.charged >= maxFailures) {
        const outcome = { status: 'unknown' as const, reason: error.reason, failures: ledger.charged };
        const { message } = error;
        return { ...transcriptOf(playing), outcome, stop_reason: 'unknown', failures, failure: message };
      }
      journal.note({ type: 'failure', ...failure });
      void journal.write();
      if (!isCharged) await outage.waitUntilHealthy(error, signal);
    }
  }
}

/** Plays once, from opening the world to the grade. Writes the progress into `playing`. */
async function playThrough(
  deps: EpisodeDeps,
  request: EpisodeRequest,
  playing: Playing,
  course: Course,
  answered: () => void,
  signal: AbortSignal,
): Promise<{ grade: Grade; stop_reason: StopReason }> {
  const { task, sampling } = request;
  const environment = await enterWorld(deps, request, playing, course, signal);
  try {
    answered();
    const { tools, opening = '' } = environment;
    const shown = { ...task, prompt: promptOf(task.prompt, opening), tools, sampling };
    const prompt = await promptTokens(deps, shown);
    const { max_input_length, max_sequence_length } = sampling;
    if (prompt.length > max_input_length || prompt.length >= max_sequence_length)
      throw new PromptTooLong(prompt.length, sampling);
    playing.tokens = [...prompt];
    playing.prompt_length = prompt.length;
    if (!course.hasSampled) await request.beforeSampling?.();
    for (;;) {
      const turn = await takeTurn(deps, request, playing, course, environment, signal);
      answered();
      const stop_reason = turn.ending ?? (await continueOrStop(deps, request, playing, turn.observation));
      if (stop_reason === null) continue;
      playing.place = 'grade';
      // Write the journal first. A retry then finds every call's result; repeating a call after the grade would be refused.
      await abortable(course.journal.write(), signal);
      const grading = environment.grade({
        finalAnswer: turn.answer,
        tryNumber: course.ledger.tryAt('grade'),
      });
      return { grade: await abortable(grading, signal), stop_reason };
    }
  } finally {
    await environment.close();
  }
}

/**
 * Returns the world that an earlier attempt left open, if it still exists; otherwise opens a new one, in which the calls are made again.
 */
async function enterWorld(
  { backend }: EpisodeDeps,
  { task, episodeSeed: seed, episodeId, run, onOpening }: EpisodeRequest,
  playing: Playing,
  course: Course,
  signal: AbortSignal,
): Promise<Environment> {
  const { world, ledger, journal } = course;
  course.world = null;
  const left = world && (await backend.attach?.(task, world.session, world.calls.size, signal));
  if (world && left && !ledger.suspect) {
    playing.sent = world.calls;
    return left;
  }
  await left?.close();
  const options = {
    ...{ seed, episodeId, tryNumber: ledger.tryAt('open'), alone: ledger.suspect, opening: course.openings },
    ...(run === undefined ? {} : { run }),
    ...(onOpening ? { onWait: onOpening } : {}),
  };
  const environment = await backend.open(task, options, signal);
  course.openings += 1;
  // The session now takes a place on the server, so the journal must name it for a later attempt.
  journal.note({ type: 'session', session: environment.session ?? null });
  void journal.write();
  return environment;
}

interface Turn {
  /** What the verifier gets if the episode ends here. */
  answer: string;
  /** Null: the episode goes on. */
  ending: 'done' | 'ended' | null;
  observation: string;
}

async function takeTurn(
  deps: EpisodeDeps,
  request: EpisodeRequest,
  playing: Playing,
  course: Course,
  environment: Environment,
  signal: AbortSignal,
): Promise<Turn> {
  const index = playing.turns.length;
  const sampled = await sampledTurn(deps, request, playing.tokens, course, signal);
  const start = playing.tokens.length;
  playing.tokens.push(...sampled.tokens);
  playing.logprobs.push(...sampled.logprobs);
  const record: TurnRecord = { policy_step: request.policyStep, start, end: playing.tokens.length };
  playing.turns.push(record);
  playing.metrics.turns += 1;

  const action = actionOf(turnText(deps, sampled.tokens), deps.format, turnContext(deps, environment.tools));
  const { answer, asked, others } = action;
  const ending = action.isDone ? ('done' as const) : null;
  if (asked?.kind === 'call') {
    record.tool = asked.call.name;
    playing.place = index;
    playing.metrics.tool_calls += 1;
    const result = await resultOf(asked.call, index, request, playing, course, environment, signal);
    if (result.isError) markError(playing, record);
    const observation = `${result.observation}${otherCallsNote(others)}`;
    return { answer, ending: result.ends ? 'ended' : ending, observation };
  }
  void course.journal.write();
  if (asked === null) return { answer, ending, observation: noCallObservation(deps.format) };
  // Count the malformed call as a call: otherwise there could be more errors than calls.
  playing.metrics.tool_calls += 1;
  markError(playing, record);
  return { answer, ending, observation: malformedCallObservation(asked.problem, deps.format) };
}

/** Returns the tool result as shown to the model. If the journal has the result from this same world, the call is not repeated. */
async function resultOf(
  call: ToolCall,
  turn: number,
  { sampling }: EpisodeRequest,
  playing: Playing,
  { journal, ledger }: Course,
  environment: Environment,
  signal: AbortSignal,
): Promise<ShownResult> {
  const sent = playing.sent.get(turn);
  if (sent && !isDeepStrictEqual(sent.call, call)) throw new OtherWorld();
  if (sent?.result) return sent.result;
  if (!sent) journal.note({ type: 'intent', turn, call });
  await abortable(journal.write(), signal);
  const place = { turn, tryNumber: ledger.tryAt(turn) };
  const result = await abortable(environment.callTool(call, place), signal);
  const shown = shownResult({ ...result, observation: resultObservation(result, sampling.max_output_chars) });
  // Written to disk with the next turn; until then, the server can repeat its answer.
  journal.note({ type: 'result', turn, ...shown });
  return shown;
}

function markError(playing: Playing, record: TurnRecord): void {
  record.error = true;
  playing.metrics.tool_errors += 1;
}

/** Appends the observation and returns null, or returns why the episode ends here. */
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

async function sampledTurn(
  deps: EpisodeDeps,
  { key, state, sampling }: EpisodeRequest,
  tokens: readonly number[],
  course: Course,
  signal: AbortSignal,
): Promise<SampledTurn> {
  const after = transcriptDigest(tokens);
  const known = course.sampled.get(after);
  if (known) return known;
  course.hasSampled = true;
  const max_new_tokens = Math.min(sampling.max_generate_length, sampling.max_sequence_length - tokens.length);
  const stop_tokens = stopTokens(deps);
  const { temperature, stop, top_p, top_k } = sampling;
  const sampled = await deps.engine.generate(
    {
      ...{ state, tokens, key, temperature, max_new_tokens, stop_tokens },
      ...(stop === undefined ? {} : { stop_strings: stop }),
      ...(top_p === undefined ? {} : { top_p }),
      ...(top_k === undefined ? {} : { top_k }),
    },
    signal,
  );
  const turn: SampledTurn = { tokens: sampled.tokens, logprobs: sampled.logprobs };
  course.sampled.set(after, turn);
  course.journal.note({ type: 'tokens', after, ...turn });
  return turn;
}

function emptyPlaying(): Playing {
  const metrics = { turns: 0, tool_calls: 0, tool_errors: 0 };
  return { tokens: [], prompt_length: 0, turns: [], logprobs: [], metrics, place: 'open', sent: new Map() };
}

/** Drops the tokens after the last sampled one. */
function transcriptOf({ tokens, prompt_length, turns, logprobs, metrics }: Playing) {
  return {
    tokens: tokens.slice(0, turns.at(-1)?.end ?? prompt_length),
    prompt_length,
    turns,
    logprobs,
    metrics,
  };
}
