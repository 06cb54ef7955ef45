// What reset, step, state and grade do to a session, whichever channel they come from.
import { createHash, randomUUID, timingSafeEqual } from 'node:crypto';
import type { FaultSource, InfrastructureFault } from './app-session.js';
import { gradeTurn, resetTurn } from './app-session.js';
import type { Catalog } from './catalog.js';
import { textResult, toolErrorType, toolList, type Observation } from './frames.js';
import { endEpisode, type Episode, type Session } from './sessions.js';
import type { GradeArguments, ResetArguments, StepAction } from './validation.js';

/** An injected fault, which replaces the answer. */
export class InjectedFault extends Error {
  constructor(readonly fault: InfrastructureFault) {
    super('the environment failed (injected fault)');
    this.name = 'InjectedFault';
  }
}

export class ForbiddenError extends Error {
  constructor() {
    super(
      'the grading token is wrong; the right one is in the server’s --token-file or LONGHAUL_GRADING_TOKEN',
    );
    this.name = 'ForbiddenError';
  }
}

interface ToolCallOutcome {
  /** Either `text` or `error` is present. */
  text?: string;
  error?: string;
}

/** The four requests of an episode. A request that repeats an idempotency key of its session gets the earlier result. */
export type EpisodeProtocol = ReturnType<typeof createEpisodeProtocol>;

interface CallKey {
  turn: number | undefined;
  try: number;
  idempotencyKey: string | undefined;
}

interface ProtocolOptions {
  catalog: Catalog;
  faults: FaultSource;
  gradingToken: string;
  faultRate: number;
  toolErrorRate: number;
  maxOutputChars: number;
  onFault(kind: InfrastructureFault | 'tool_error'): void;
}

export function createEpisodeProtocol(options: ProtocolOptions) {
  const { catalog, faults } = options;
  const tokenDigest = sha256(options.gradingToken);

  /** Throws `ForbiddenError`, after the same time for every wrong token. */
  function checkToken(token: string): void {
    if (!timingSafeEqual(sha256(token), tokenDigest)) throw new ForbiddenError();
  }

  function injectInfrastructureFault(key: { seed: number; turn: number; try: number; rate: number }): void {
    if (key.rate <= 0) return;
    const fault = faults.infrastructure(key);
    if (!fault) return;
    options.onFault(fault);
    throw new InjectedFault(fault);
  }

  function reset(session: Session, args: ResetArguments): Observation {
    if (args.token !== undefined) checkToken(args.token);
    const trusted = args.token !== undefined;
    const seed = args.seed ?? 0;
    const faultRate = (trusted ? args.faultRate : undefined) ?? options.faultRate;
    endEpisode(session);
    injectInfrastructureFault({ seed, turn: resetTurn, try: args.try, rate: faultRate });
    const selected = catalog.select(args);
    const episode: Episode = {
      episodeId: args.episodeId ?? randomUUID(),
      resetKey: args.idempotencyKey,
      seed,
      selected,
      world: selected.app.open(selected.task, { seed }),
      faultRate,
      toolErrorRate: (trusted ? args.toolErrorRate : undefined) ?? options.toolErrorRate,
      turns: 0,
      reward: null,
      done: false,
    };
    session.episode = episode;
    const { task_key, env_key, prompt, difficulty, env_variables } = selected.task;
    return {
      // The prompt is in the observation, because clients of older versions do not show metadata.
      fields: { prompt, task_key, env_key, difficulty, env_variables },
      metadata: { task_key, env_key },
      reward: null,
      done: false,
    };
  }

  const call = (session: Session, name: string, args: Record<string, unknown>, key: CallKey) =>
    session.answered.once('call', key.idempotencyKey, () => callTool(session, name, args, key));

  function callTool(
    session: Session,
    name: string,
    args: Record<string, unknown>,
    key: CallKey,
  ): ToolCallOutcome {
    const episode = session.episode;
    if (!episode) return { error: `Error calling tool '${name}': no task is open; send a reset first` };
    const turn = key.turn ?? episode.turns;
    episode.turns++;
    const { seed } = episode;
    injectInfrastructureFault({ seed, turn, try: key.try, rate: episode.faultRate });
    if (episode.toolErrorRate > 0) {
      const error = faults.toolError({ seed, turn, rate: episode.toolErrorRate });
      if (error !== undefined) {
        options.onFault('tool_error');
        return { error };
      }
    }
    const result = episode.world.call(name, args);
    const text = limit(result.text, options.maxOutputChars);
    return result.isError ? { error: text } : { text };
  }

  function step(session: Session, action: StepAction): Observation {
    if (action.type === 'list_tools') {
      const tools = session.episode?.selected.app.tools ?? catalog.tools;
      return observe(session, { tools: toolList(tools) });
    }
    const { text, error } = call(session, action.tool, action.arguments, action);
    return observe(session, {
      tool_name: action.tool,
      result: text === undefined ? null : textResult(text),
      error: error === undefined ? null : { error_type: toolErrorType(error), message: error },
    });
  }

  function grade(session: Session, args: GradeArguments): { value: number; explanation: string } {
    checkToken(args.token);
    const episode = session.episode;
    if (!episode) throw new Error('nothing to grade: no task is open in this session; send a reset first');
    const { seed, faultRate } = episode;
    injectInfrastructureFault({ seed, turn: gradeTurn, try: args.try, rate: faultRate });
    const { value, explanation } = episode.world.grade(args.finalAnswer);
    episode.reward = value;
    episode.done = true;
    return { value, explanation };
  }

  return {
    reset: (session: Session, args: ResetArguments) =>
      session.answered.once('reset', args.idempotencyKey, () => reset(session, args)),
    step,
    call,
    grade: (session: Session, args: GradeArguments) =>
      session.answered.once('grade', args.idempotencyKey, () => grade(session, args)),
    checkToken,
    // Contains neither the task's solution nor its rows: only what the agent has received.
    state: ({ episode }: Session) => ({
      episode_id: episode?.episodeId ?? null,
      step_count: episode?.turns ?? 0,
      task_key: episode?.selected.task.task_key ?? null,
      env_key: episode?.selected.app.name ?? null,
      // Shows an attaching client which of the session's worlds this is.
      ...(episode?.resetKey === undefined ? {} : { reset_key: episode.resetKey }),
    }),
  };
}

function observe(session: Session, fields: Record<string, unknown>): Observation {
  return {
    fields,
    metadata: {},
    reward: session.episode?.reward ?? null,
    done: session.episode?.done ?? false,
  };
}

function limit(text: string, maxChars: number): string {
  if (text.length <= maxChars) return text;
  return `${text.slice(0, maxChars)}\n[cut: ${text.length} characters, the first ${maxChars} are shown]`;
}

function sha256(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
