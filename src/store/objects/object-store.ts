// The one interface to durable bytes. Two backends, a directory and S3; one conformance suite tests both.
import type { Transfer } from './transfer.js';

/** Keys are `/`-separated, relative, no part starting with a dot, ≤ 512 bytes of [A-Za-z0-9._~/=-]. */
export interface ObjectStore {
  /** `dir:/path` or `s3://bucket/prefix`; it holds no secret and may be printed. */
  readonly address: string;

  /** Null if the object does not exist. */
  get(key: string): Promise<Uint8Array | null>;

  head(key: string): Promise<ObjectInfo | null>;

  /**
   * Create-only put. `exists`: the key already holds other bytes (or the same bytes from another author).
   * After an unclear answer (409, 5xx, time-out, lost reply, 412 for the store's own put), the key is read to find the result (R3).
   */
  create(key: string, bytes: Uint8Array): Promise<'created' | 'exists'>;

  /** Create-only put of a file, in parts if the file is large; `sweep` removes unfinished parts. */
  createFromFile(key: string, path: string, transfer?: Transfer): Promise<'created' | 'exists'>;

  /** Downloads to a temporary name beside `path`, then renames. False if the object does not exist. */
  getToFile(key: string, path: string, transfer?: Transfer): Promise<boolean>;

  /**
   * The object's bytes in pieces, for objects too large for memory. Null if the object does not exist. Reading throws `StoreUnavailable` if
   * the connection breaks; the reader must then start again.
   */
  stream(key: string): Promise<AsyncIterable<Uint8Array> | null>;

  /** All objects whose key starts with `prefix`, in key order. */
  list(prefix: string): AsyncIterable<ObjectInfo>;

  /**
   * Names directly below `prefix` (which ends in `/`), in order; a folder's name ends in `/`.
   * A listed folder may be empty: in a directory store, a killed put leaves its folder behind.
   */
  listFolder(prefix: string): Promise<string[]>;

  /** Used by garbage collection and tests only. Deleting a missing key is no error. */
  delete(key: string): Promise<void>;

  /** Removes temporary files and parts of killed puts that are older than `olderThanMs`; returns the number of puts. */
  sweep(olderThanMs: number): Promise<number>;
}

export interface ObjectInfo {
  key: string;
  size: number;
  modified: Date;
}
