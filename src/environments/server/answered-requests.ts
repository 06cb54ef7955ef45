// The results of a session's requests by idempotency key: a request that its client repeats, because the reply was lost, is answered from
// here. Only the newest result is kept: a session takes one request at a time, so no older one can be in doubt. Invariant: no key is
// carried out twice in an episode. An older one is refused, not done again.

/** Far more requests than an episode has; beyond it the oldest keys are forgotten. */
const maxKeys = 10_000;

export class RepeatedKeyError extends Error {
  constructor(key: string, why: string) {
    super(`idempotency key ${JSON.stringify(key)}: ${why}; give each request a key of its own`);
    this.name = 'RepeatedKeyError';
  }
}

export type KeyedRequest = 'reset' | 'call' | 'grade';

export interface AnsweredRequests {
  /** Runs it, or returns (throws) the earlier result of this key. Throws `RepeatedKeyError`. */
  once<T>(request: KeyedRequest, key: string | undefined, run: () => T): T;
}

interface Answer {
  request: KeyedRequest;
  key: string;
  outcome: { value: unknown } | { error: unknown };
}

export function createAnsweredRequests(): AnsweredRequests {
  const keys = new Set<string>();
  let newest: Answer | undefined;

  function remember(answer: Answer): void {
    // Results of the previous episode are gone with it.
    if (answer.request === 'reset') keys.clear();
    newest = answer;
    keys.add(answer.key);
    if (keys.size <= maxKeys) return;
    for (const oldest of keys) {
      keys.delete(oldest);
      return;
    }
  }

  return {
    once<T>(request: KeyedRequest, key: string | undefined, run: () => T): T {
      if (key === undefined) return run();
      if (newest?.key === key) {
        if (newest.request !== request) throw new RepeatedKeyError(key, `it came with a ${newest.request}`);
        if ('error' in newest.outcome) throw newest.outcome.error;
        return newest.outcome.value as T;
      }
      if (keys.has(key)) throw new RepeatedKeyError(key, 'it was answered before the newest request');
      try {
        const value = run();
        remember({ request, key, outcome: { value } });
        return value;
      } catch (error) {
        remember({ request, key, outcome: { error } });
        throw error;
      }
    },
  };
}
