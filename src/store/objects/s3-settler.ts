// Repeats requests until they are settled. A put with an inconclusive reply is settled by reading its key back (R3).
import { answerOf, type S3Answer } from './s3-errors.js';
import { transferMs, withDeadline } from './s3-deadlines.js';
import { StoreUnavailable } from '../record-errors.js';

export class S3Settler {
  constructor(
    private readonly address: string,
    private readonly deadlineMs: number,
  ) {}

  /** `isMine` says whether the key holds the bytes of this put; null if the key holds nothing. */
  async create(
    key: string,
    put: () => Promise<unknown>,
    bytes: number,
    isMine: () => Promise<boolean | null>,
  ): Promise<'created' | 'exists'> {
    let unsettled = false;
    return withDeadline(this.deadlineMs + transferMs(bytes), async (attempt) => {
      const answer = await this.ask(put);
      if (answer.kind === 'ok') return { value: 'created' as const };
      if (answer.kind === 'refused') throw answer.error;
      // If no earlier answer was unclear, a 412 means another writer. After an unclear answer, our own earlier try may have stored the
      // object.
      if (answer.kind === 'taken' && !unsettled) return { value: 'exists' as const };
      unsettled = true;
      const mine = await isMine();
      if (mine !== null) return { value: mine ? ('created' as const) : ('exists' as const) };
      const unavailable = this.unavailable(`create ${key}`, attempt, answer);
      // The service has dropped the upload and its parts: another try cannot find them.
      if (answer.kind === 'missing') throw unavailable;
      return { retry: unavailable };
    });
  }

  /** Null for 404. Retries temporary errors until the deadline. */
  async request<T>(
    what: string,
    request: (prolong: (ms: number) => void) => Promise<T>,
    signal?: AbortSignal,
  ): Promise<T | null> {
    return withDeadline(this.deadlineMs, async (attempt, prolong) => {
      const answer = await this.ask(() => request(prolong));
      signal?.throwIfAborted();
      if (answer.kind === 'ok') return { value: answer.value };
      if (answer.kind === 'missing') return { value: null };
      if (answer.kind === 'refused') throw answer.error;
      return { retry: this.unavailable(what, attempt, answer) };
    });
  }

  async ask<T>(request: () => Promise<T>): Promise<S3Answer<T>> {
    try {
      return { kind: 'ok', value: await request() };
    } catch (error) {
      return answerOf(error, this.address);
    }
  }

  private unavailable(what: string, attempt: number, answer: { reason: string }): StoreUnavailable {
    return new StoreUnavailable(
      `${this.address} gave no clear answer to "${what}" within ${this.deadlineMs / 1000} s (${attempt} tries): ${answer.reason}`,
    );
  }
}
