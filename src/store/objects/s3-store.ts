// A store in an S3 bucket. Creates are exclusive by `If-None-Match: *`. After an inconclusive reply (409, 5xx, time-out, lost reply, 412
// that an earlier try of the same put may have caused), the store reads the key back and compares its bytes (R3).
import { randomBytes } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { open, rename, rm, stat } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import {
  DeleteObjectCommand,
  HeadObjectCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  type ListObjectsV2CommandOutput,
} from '@aws-sdk/client-s3';
import { sha256Pieces } from '../../base/sha256.js';
import { checkKey, checkPrefix } from '../record-keys.js';
import type { ObjectInfo, ObjectStore } from './object-store.js';
import type { S3Address } from './s3-address.js';
import { S3Connection } from './s3-connection.js';
import { transferMs } from './s3-deadlines.js';
import { S3Multipart, sha256Metadata } from './s3-multipart.js';
import { S3Settler } from './s3-settler.js';
import { BadKey, isNoSpace, StoreFull, StoreUnavailable } from '../record-errors.js';
import { reporting, type Transfer } from './transfer.js';

export interface S3Options {
  /** Size of a part; larger files are uploaded in parts. S3 requires ≥ 5 MiB. */
  partBytes?: number;
  /** Silence after which a request fails. A whole request may take this long plus the time for its bytes. */
  requestTimeoutMs?: number;
  /** An operation starts no new try after this time plus the time for its bytes; a running try is awaited. */
  deadlineMs?: number;
}

export function openS3Store(address: S3Address, options: S3Options = {}): ObjectStore {
  return new S3Store(address, options);
}

class S3Store implements ObjectStore {
  readonly address: string;
  private readonly s3: S3Connection;
  private readonly bucket: string;
  private readonly prefix: string;
  private readonly partBytes: number;
  private readonly settler: S3Settler;
  private readonly multipart: S3Multipart;

  constructor(address: S3Address, options: S3Options) {
    const { bucket, prefix, endpoint, region } = address;
    const query = new URLSearchParams({
      ...(endpoint ? { endpoint } : {}),
      ...(region ? { region } : {}),
    }).toString();
    this.address = `s3://${bucket}${prefix && `/${prefix}`}${query && `?${query}`}`;
    this.bucket = bucket;
    this.prefix = prefix && `${prefix}/`;
    this.partBytes = options.partBytes ?? 32 << 20;
    this.settler = new S3Settler(this.address, options.deadlineMs ?? 120_000);
    this.s3 = new S3Connection(address, options.requestTimeoutMs ?? 30_000);
    this.multipart = new S3Multipart({
      s3: this.s3,
      settler: this.settler,
      address: this.address,
      bucket,
      prefix: this.prefix,
      partBytes: this.partBytes,
    });
  }

  async get(key: string): Promise<Uint8Array | null> {
    return this.read(key, async (pieces) => {
      const bytes: Uint8Array[] = [];
      for await (const piece of pieces) bytes.push(piece);
      return Buffer.concat(bytes);
    });
  }

  async head(key: string): Promise<ObjectInfo | null> {
    const found = await this.headWithDigest(key);
    return found && { key, size: found.size, modified: found.modified };
  }

  async create(key: string, bytes: Uint8Array): Promise<'created' | 'exists'> {
    const Key = this.key(key);
    return this.settler.create(
      key,
      () =>
        this.s3.send(
          new PutObjectCommand({
            Bucket: this.bucket,
            Key,
            Body: bytes,
            ContentLength: bytes.length,
            IfNoneMatch: '*',
          }),
          { bytes: bytes.length },
        ),
      bytes.length,
      async () => {
        const stored = await this.get(key);
        return stored && Buffer.compare(stored, bytes) === 0;
      },
    );
  }

  async createFromFile(key: string, path: string, transfer: Transfer = {}): Promise<'created' | 'exists'> {
    const { signal, onProgress } = transfer;
    const { size } = await stat(path);
    if (size <= this.partBytes) {
      const file = await open(path);
      try {
        const answer = await this.create(key, await file.readFile({ ...(signal ? { signal } : {}) }));
        onProgress?.(size);
        return answer;
      } finally {
        await file.close();
      }
    }
    // Check first: otherwise gigabytes would be uploaded and then refused.
    if (await this.head(key)) return 'exists';
    return this.multipart.create(
      key,
      { path, size },
      (sha256) => this.isStored(key, { size, sha256 }),
      transfer,
    );
  }

  async getToFile(key: string, path: string, { signal, onProgress }: Transfer = {}): Promise<boolean> {
    const temporary = `${path}.${randomBytes(6).toString('hex')}.part`;
    try {
      const found = await this.read(
        key,
        async (pieces) => {
          const reported = reporting(pieces, onProgress);
          await pipeline(reported, createWriteStream(temporary), signal ? { signal } : {});
          return true;
        },
        signal,
      );
      if (!found) return false;
      const file = await open(temporary, 'r+');
      try {
        await file.datasync();
      } finally {
        await file.close();
      }
      await rename(temporary, path);
      return true;
    } catch (error) {
      if (!isNoSpace(error)) throw error;
      throw new StoreFull(
        `no space for ${path} on this node's disk (${(error as NodeJS.ErrnoException).code}): free some space there; ` +
          'nothing was lost',
        { cause: error },
      );
    } finally {
      await rm(temporary, { force: true });
    }
  }

  async stream(key: string): Promise<AsyncIterable<Uint8Array> | null> {
    const pieces = await this.read(key, (begun) => Promise.resolve(begun));
    return pieces && this.retryable(key, pieces);
  }

  async *list(prefix: string): AsyncIterable<ObjectInfo> {
    checkPrefix(prefix);
    for await (const page of this.pages(prefix, null)) {
      for (const { Key = '', Size = 0, LastModified } of page.Contents ?? []) {
        // Some servers list folders as empty objects; none of our keys ends in a slash.
        if (Key.endsWith('/')) continue;
        yield { key: Key.slice(this.prefix.length), size: Size, modified: LastModified ?? new Date(0) };
      }
    }
  }

  async listFolder(prefix: string): Promise<string[]> {
    checkPrefix(prefix);
    if (prefix !== '' && !prefix.endsWith('/'))
      throw new BadKey(`"${prefix}" is not a folder: it must end in "/"`);
    const names = new Set<string>();
    const skip = this.prefix.length + prefix.length;
    for await (const page of this.pages(prefix, '/')) {
      for (const { Prefix = '' } of page.CommonPrefixes ?? []) names.add(Prefix.slice(skip));
      for (const { Key = '' } of page.Contents ?? []) if (!Key.endsWith('/')) names.add(Key.slice(skip));
    }
    return [...names].sort();
  }

  async delete(key: string): Promise<void> {
    const Key = this.key(key);
    await this.settler.request(`delete ${key}`, () =>
      this.s3.send(new DeleteObjectCommand({ Bucket: this.bucket, Key })),
    );
  }

  sweep(olderThanMs: number): Promise<number> {
    return this.multipart.sweep(olderThanMs);
  }

  private key(key: string): string {
    return this.prefix + checkKey(key);
  }

  /**
   * Null if the object does not exist. If the connection breaks, the object is read again from its start. An error thrown by `use` itself
   * is not the store's fault and is thrown at once.
   */
  private async read<T>(
    key: string,
    use: (pieces: AsyncIterable<Uint8Array>) => Promise<T>,
    signal?: AbortSignal,
  ): Promise<T | null> {
    const target = { Bucket: this.bucket, Key: this.key(key) };
    const read = await this.settler.request<{ value: T } | { failure: unknown }>(
      `get ${key}`,
      async (prolong) => {
        const { size, pieces } = await this.s3.open(target, signal);
        prolong(transferMs(size));
        let brokeOff = false;
        const watched = async function* (): AsyncGenerator<Uint8Array> {
          try {
            yield* pieces;
          } catch (error) {
            brokeOff = true;
            throw error;
          }
        };
        try {
          return { value: await use(watched()) };
        } catch (error) {
          if (brokeOff) throw error;
          return { failure: error };
        }
      },
      signal,
    );
    if (read && 'failure' in read) throw read.failure;
    return read && read.value;
  }

  /** Turns a broken stream into `StoreUnavailable`. The reader has already consumed a part of it, so only the reader can start again. */
  private async *retryable(key: string, pieces: AsyncIterable<Uint8Array>): AsyncIterable<Uint8Array> {
    try {
      yield* pieces;
    } catch (error) {
      throw new StoreUnavailable(`${this.address} broke off in the middle of ${key}: ${String(error)}`, {
        cause: error,
      });
    }
  }

  /** Whether the object has this size and sha256; null if the object does not exist. */
  private async isStored(key: string, content: { size: number; sha256: string }): Promise<boolean | null> {
    const stored = await this.headWithDigest(key);
    if (!stored || stored.size !== content.size) return stored && false;
    if (stored.sha256 !== undefined) return stored.sha256 === content.sha256;
    const pieces = await this.stream(key);
    return pieces && (await sha256Pieces(pieces)).sha256 === content.sha256;
  }

  private async headWithDigest(
    key: string,
  ): Promise<{ size: number; modified: Date; sha256: string | undefined } | null> {
    const Key = this.key(key);
    const reply = await this.settler.request(`head ${key}`, () =>
      this.s3.send(new HeadObjectCommand({ Bucket: this.bucket, Key })),
    );
    return (
      reply && {
        size: reply.ContentLength ?? 0,
        modified: reply.LastModified ?? new Date(0),
        sha256: reply.Metadata?.[sha256Metadata],
      }
    );
  }

  private async *pages(prefix: string, delimiter: '/' | null): AsyncIterable<ListObjectsV2CommandOutput> {
    let ContinuationToken: string | undefined;
    do {
      const page: ListObjectsV2CommandOutput | null = await this.settler.request(`list ${prefix}`, () =>
        this.s3.send(
          new ListObjectsV2Command({
            Bucket: this.bucket,
            Prefix: this.prefix + prefix,
            ...(delimiter ? { Delimiter: delimiter } : {}),
            ...(ContinuationToken ? { ContinuationToken } : {}),
          }),
        ),
      );
      if (page === null) return;
      yield page;
      ContinuationToken = page.IsTruncated ? page.NextContinuationToken : undefined;
    } while (ContinuationToken !== undefined);
  }
}
