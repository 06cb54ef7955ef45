// A session's results by idempotency key. If a client repeats a request because the reply was lost, it gets the stored result. Only the
// newest result is stored, because a session takes one request at a time, so the client must have received all older ones. Invariant: an
// episode carries out no key twice; a repeated older key is refused.

/** Far more than the requests of an episode; beyond this number, the oldest keys are forgotten. */
const maxKeys = 10_000;

export class RepeatedKeyError extends Error {
  constructor(key: string, why: string) {
    super(`idempotency key ${JSON.stringify(key)}: ${why}; give each request a key of its own`);
    this.name = 'RepeatedKeyError';
  }
}

type KeyedRequest = 'reset' | 'call' | 'grade';

export interface AnsweredRequests {
  /** Runs the request. If its key was just run, returns or throws that result; throws `RepeatedKeyError` for an older key. */
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
    // A new episode forgets the keys of the previous one.
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
