// Checks that enough outcomes are graded. If a server cannot grade, a run would train on nothing and report empty figures. Instead the run
// is blocked, and a person sees the environment, its message, and how to fix it (R25).
import type { EnvironmentReason, EpisodeRecord } from '../spec/records/episode.js';
import type { RunRecord } from '../spec/records/run-records.js';

/** Thrown if too few outcomes of an evaluation are graded. Its result is then not stored. */
export class NothingGraded extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'NothingGraded';
  }
}

/** Largest share of unknown outcomes that the run accepts. */
export function maxUnknownShare({ spec }: Pick<RunRecord, 'spec'>): number {
  return spec.generator.max_unknown_share;
}

export function tooFewGraded(graded: number, unknown: number, share: number): boolean {
  return graded + unknown > 0 && (graded === 0 || unknown / (graded + unknown) > share);
}

/** Text that says what is wrong and how to fix it; null if enough outcomes are graded. */
export function lackOfGrades(
  episodes: readonly Pick<EpisodeRecord, 'env_key' | 'outcome' | 'observed'>[],
  share: number,
): string | null {
  const unknown = episodes.filter(({ outcome }) => outcome.status === 'unknown').length;
  const graded = episodes.length - unknown;
  const most = mostFrequentReason(episodes);
  if (most === null || !tooFewGraded(graded, unknown, share)) return null;
  const how =
    graded === 0
      ? `no outcome was graded (${unknown} of ${unknown} are unknown)`
      : `${unknown} of ${episodes.length} outcomes are unknown, and generator.max_unknown_share is ${share}`;
  return `${how}. Most often (${most.episodes} of ${unknown}) ${reasonText(most)}. ${fixOf(most.reason)}`;
}

/** Records of other versions may have other reasons. */
const otherFix = 'Read the log of the environment server';

const fixes: Record<EnvironmentReason | 'prompt_too_long', string> = {
  connect: 'Start the environment server, or correct its url',
  capacity: 'Give the environment server more places, or close the clients that hold them',
  socket_lost: 'Read the log of the server: the connection ends during these calls, as the reason says',
  timeout: 'Raise generator.call_timeout_s in a run with a new name, or make the server faster',
  unauthorized:
    'Put the key that the server asks for into the variable of the workers that environments[].headers_env names; on Fleet, into FLEET_API_KEY, or that of api_key_env',
  forbidden: 'Ask Fleet for access to the environment, or use the key of a team that has it',
  contract: 'Correct what the spec says of the server: url, contract and sessions of the environment',
  open: 'Make the server answer reset and list_tools for these tasks, or name the server that has them; on Fleet, correct the environment, version and data of the tasks',
  reset: 'See what Fleet says of the instances: their reset is refused',
  world: 'Keep other clients off the server, and make it keep its world between requests',
  expired: 'Raise environments[].ttl_s in a run with a new name: the instances end before the episodes do',
  call: 'Fix the tools of the server',
  grade:
    'Make the server return a number as reward with its last observation, set grading_token_env if it grades by token, or set no_call: 0 if ' +
    'the episodes make no call, and doing nothing solves no task',
  canary:
    'See what Fleet says of the instances: their databases answer no queries, and then no grade is taken',
  unsteady: 'Correct the verifiers of these tasks: the same world is graded differently twice',
  verifier_failed: 'Correct the verifiers of these tasks: they fail at Fleet, as the reason says',
  judge_error: 'Correct the judge that the verifiers of these tasks ask, or its key',
  no_number: 'Let the verifiers of these tasks return a number',
  prompt_too_long:
    'Raise max_input_length and max_sequence_length in a run with a new name, or use shorter tasks',
};

function fixOf(reason: string): string {
  return Object.hasOwn(fixes, reason) ? fixes[reason as keyof typeof fixes] : otherFix;
}

/** The most frequent combination of environment and reason among unknown outcomes. */
interface UnknownReason {
  env_key: string;
  /** As in the outcome: `open`, `call`, `grade`, … */
  reason: string;
  /** The server's own message, if a record has it. */
  failure: string | null;
  /** Number of episodes with this environment and reason. */
  episodes: number;
}

/** Null if every outcome is known. Among equally frequent reasons or messages, the first one counts. */
export function mostFrequentReason(
  episodes: readonly Pick<EpisodeRecord, 'env_key' | 'outcome' | 'observed'>[],
): UnknownReason | null {
  const found = new Map<string, { reason: UnknownReason; words: Map<string, number> }>();
  for (const { env_key, outcome, observed } of episodes) {
    if (outcome.status === 'graded') continue;
    const key = JSON.stringify([env_key, outcome.reason]);
    const entry = found.get(key) ?? {
      reason: { env_key, reason: outcome.reason, failure: null, episodes: 0 },
      words: new Map<string, number>(),
    };
    found.set(key, entry);
    entry.reason.episodes += 1;
    const { failure } = observed;
    if (failure !== undefined) entry.words.set(failure, (entry.words.get(failure) ?? 0) + 1);
  }
  const [most] = [...found.values()].sort((a, b) => b.reason.episodes - a.reason.episodes);
  if (!most) return null;
  const [words] = [...most.words].sort(([, a], [, b]) => b - a);
  return { ...most.reason, failure: words?.[0] ?? null };
}

/** `tracker: grade: http://… gave no reward and no grade` */
export function reasonText({ env_key, reason, failure }: Omit<UnknownReason, 'episodes'>): string {
  return failure === null ? `${env_key}: ${reason}` : `${env_key}: ${reason}: ${failure}`;
}
