// Errors of the store and its records. Each sets `name` by hand: workflows compare it, and a minifier would change the class's name.
import type { Digest } from '../spec/records/parts.js';

/** The store lacks what records need: create-only puts, read-after-write, access. No retry can fix it. */
export class StoreUnfit extends Error {
  override readonly name = 'StoreUnfit';
}

/** The store did not answer in time, or answered with an error that may pass. */
export class StoreUnavailable extends Error {
  override readonly name = 'StoreUnavailable';
}

/** No space is left; nothing was written. */
export class StoreFull extends Error {
  override readonly name = 'StoreFull';
}

/** Whether a write failed because the disk or the quota is full. */
export function isNoSpace(error: unknown): boolean {
  return ['ENOSPC', 'EDQUOT'].includes((error as NodeJS.ErrnoException | null)?.code ?? '');
}

/** A name or key that must not become part of a key. */
export class BadKey extends Error {
  override readonly name = 'BadKey';
}

/** A required record is missing, is not valid JSON, fails its schema or contradicts its key (R24). */
export class UnreadableRecord extends Error {
  override readonly name = 'UnreadableRecord';
  /** What a person can do about it, if known. */
  remedy: string | null = null;
  constructor(
    readonly key: string,
    readonly problem: string,
    options?: ErrorOptions,
  ) {
    super(`record ${key} is unreadable: ${problem}`, options);
  }
}

/** A record was written by a newer Longhaul; it is refused, not guessed (R1). */
export class NewerSchema extends Error {
  override readonly name = 'NewerSchema';
  constructor(
    readonly key: string,
    readonly found: string,
    readonly known: string,
  ) {
    super(
      `record ${key} has schema ${found}; this version of Longhaul reads ${known}. ` +
        'Use a version at least as new as the one that wrote it.',
    );
  }
}

/** An earlier Longhaul wrote a record in a schema that this version does not read; it is refused, not guessed (R1). */
export class OlderSchema extends Error {
  override readonly name = 'OlderSchema';
  constructor(
    readonly key: string,
    readonly found: string,
    readonly known: string,
  ) {
    super(
      `record ${key} has schema ${found}: an earlier version of Longhaul made it, but this version reads only ${known}. ` +
        'Finish it with the version that began it, or start it again with a new name (docs/upgrades.md).',
    );
  }
}

/** The same inputs gave a result that differs from the stored record (R2, R19). Nothing was changed. */
export class Diverged extends Error {
  override readonly name = 'Diverged';
  constructor(
    message: string,
    /** Both results, if the thrower has them. */
    readonly evidence?: { key: string; stored: unknown; computed: unknown },
  ) {
    super(message);
  }
}

/** Another workflow execution drives the run now; the execution that gets this error must end (R20). */
export class OwnerChanged extends Error {
  override readonly name = 'OwnerChanged';
  constructor(run: string, mine: number, newest: number) {
    super(
      `run ${run} has a newer owner: runs/${run}/owners/${newest}.json, and this execution is only owner ${mine}; it ends here`,
    );
  }
}

/** Whether the error says that a record is damaged, or has a schema version that this Longhaul does not read. */
export function isUnreadable(error: unknown): boolean {
  return [UnreadableRecord, OlderSchema, NewerSchema].some((kind) => error instanceof kind);
}

/** Whether the error says that stored content is damaged or missing, or cannot be read by this Longhaul; no other error of the store. */
export function isDamage(error: unknown): error is Error {
  return (
    isUnreadable(error) || [CorruptCheckpoint, BadTensorFile, BadKey].some((kind) => error instanceof kind)
  );
}

/** A live or unreachable workflow execution owns the run (R20). */
export class RunOwned extends Error {
  override readonly name = 'RunOwned';
}

/** A checkpoint's file is missing, or has another size or sha256 than its manifest says. */
export class CorruptCheckpoint extends Error {
  override readonly name = 'CorruptCheckpoint';
  constructor(
    readonly key: string,
    readonly expected: Digest | null,
    problem: string,
  ) {
    super(`${key}: ${problem}`);
  }
}

/** A safetensors or batch file breaks its format. */
export class BadTensorFile extends Error {
  override readonly name = 'BadTensorFile';
}
