// One session of an OpenEnv server, whatever its transport: frames in, replies out, one at a time.

/** A server's error reply; the caller decides what it means. */
export class ErrorFrame extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly data: Record<string, unknown>,
  ) {
    super(message);
    this.name = 'ErrorFrame';
  }
}

export interface ReplyFrame {
  type: string;
  data: Record<string, unknown>;
}

export interface OpenEnvConnection {
  /** Id of a session that survives a lost connection; undefined if the server keeps none. */
  readonly sessionId: string | undefined;
  /** True if this process ended the connection, which says nothing about the server. */
  readonly endedByUs: boolean;
  /** True while a request may be sent. */
  readonly usable: boolean;
  /** Removes secrets from the server's texts. */
  censor: (text: string) => string;
  /** Called when the connection ends while nothing is in flight. */
  set onIdleEnd(callback: (() => void) | undefined);
  /** An idempotency key that no other request of the session has. */
  newKey(): string;
  /**
   * Sends a frame and resolves with its reply. Rejects with `ErrorFrame`, or with `EnvironmentError` `socket_lost` or `timeout` when the
   * connection is over. `key`: a server that keeps sessions carries out only one request with this key.
   */
  request(frame: Record<string, unknown>, timeoutMs: number, key?: string): Promise<ReplyFrame>;
  /** Ends the session. */
  close(): void;
  /** Same as `close`; resolves when the session has ended, after at most 2 s. */
  closed(): Promise<void>;
  /** Ends the session at once; requests in flight fail. */
  terminate(): void;
  /** Leaves a session that the server keeps for its owner. */
  leave(): void;
}
