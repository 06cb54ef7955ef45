// The one interface to durable bytes. Two backends, a directory and S3; one conformance suite tests both.
import type { Transfer } from './transfer.js';

/** Keys are `/`-separated, relative, no part starting with a dot, ≤ 512 bytes of [A-Za-z0-9._~/=-]. */
export interface ObjectStore {
  /** `dir:/path` or `s3://bucket/prefix`; printable, never with a secret. */
  readonly address: string;

  /** Null if the object does not exist. */
  get(key: string): Promise<Uint8Array | null>;

  head(key: string): Promise<ObjectInfo | null>;

  /**
   * Create-only put. `exists`: the key already holds other bytes (or the same ones by another author).
   * An answer that settles nothing (409, 5xx, time-out, lost reply, 412 for one's own put) is settled by reading (R3).
   */
  create(key: string, bytes: Uint8Array): Promise<'created' | 'exists'>;

  /** Create-only put of a file, in parts if it is large; `sweep` removes unfinished parts. */
  createFromFile(key: string, path: string, transfer?: Transfer): Promise<'created' | 'exists'>;

  /** Downloads to a temporary name beside `path`, then renames. False if the object does not exist. */
  getToFile(key: string, path: string, transfer?: Transfer): Promise<boolean>;

  /**
   * The object's bytes in pieces, for objects too large for memory. Null if the object does not exist. Reading throws `StoreUnavailable` if
   * the bytes break off; the reader starts again.
   */
  stream(key: string): Promise<AsyncIterable<Uint8Array> | null>;

  /** All objects whose key starts with `prefix`, in key order. */
  list(prefix: string): AsyncIterable<ObjectInfo>;

  /**
   * Names directly below `prefix` (which ends in `/`), in order: objects without and folders with a trailing `/`.
   * A folder may hold nothing: a put that was killed leaves its folder behind in a directory store.
   */
  listFolder(prefix: string): Promise<string[]>;

  /** For garbage collection and tests. Deleting a missing key is no error. */
  delete(key: string): Promise<void>;

  /** Removes what killed puts left behind, untouched for `olderThanMs`; returns their number. */
  sweep(olderThanMs: number): Promise<number>;
}

export interface ObjectInfo {
  key: string;
  size: number;
  modified: Date;
}
