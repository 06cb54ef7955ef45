// Says in a few words why outcomes are unknown. The most frequent reason shows which environment is broken.
import type { EpisodeRecord } from '../spec/records/episode.js';

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
