// The model's turns in an episode, as trajectory-analysis.ts reads them.
import type { EpisodeRecord, StopReason } from '../../spec/records/episode.js';
import { reasonOf, verdictOf, type Transcript, type Verdict } from './transcripts.js';
import type { Segment } from './turn-segments.js';

interface TrajectoryTurn {
  /** Tool and arguments as one text. Equal calls have equal texts, in any order of their arguments. Null if there is no valid call. */
  call: string | null;
  tool: string | null;
  isError: boolean;
  /**
   * The error text that the model read. Null if there was none, and for an episode's last turn, because no record holds the answer to it.
   */
  error: string | null;
}

export interface Trajectory {
  /** Id of the transcript. */
  id: string;
  env_key: string;
  verdict: Verdict;
  stop_reason: StopReason;
  /** Why the outcome is unknown, with the failure's text; null if the outcome is known. */
  reason: string | null;
  turns: TrajectoryTurn[];
}

export function trajectoryOf(id: string, episode: EpisodeRecord, transcript: Transcript): Trajectory {
  const { outcome, env_key, stop_reason } = episode;
  return {
    ...{ id, env_key, stop_reason },
    verdict: verdictOf(episode),
    reason: outcome.status === 'unknown' ? reasonOf(outcome.reason, episode) : null,
    turns: turnsOf(episode, transcript),
  };
}

function turnsOf({ turns }: EpisodeRecord, { messages }: Transcript): TrajectoryTurn[] {
  const said = messages.flatMap(({ role }, index) => (role === 'assistant' ? [index] : []));
  // Skip assistant messages of the prompt: it may hold examples.
  const own = said.slice(said.length - turns.length);
  return turns.map((turn, n) => {
    const at = own[n] ?? -1;
    const [message, answer] = [messages[at], messages[at + 1]];
    const segments = message?.role === 'assistant' ? message.segments : [];
    const isError = turn.error === true;
    return {
      call: turn.tool === undefined ? null : callKey(turn.tool, segments),
      tool: turn.tool ?? null,
      isError,
      error: isError && answer?.role === 'environment' ? answer.text : null,
    };
  });
}

function callKey(tool: string, segments: readonly Segment[]): string {
  const call = segments.find((segment) => segment.kind === 'call' && segment.name === tool);
  const given = call?.kind === 'call' ? [...call.arguments] : [];
  return JSON.stringify([tool, ...given.sort(([a], [b]) => (a < b ? -1 : 1))]);
}
