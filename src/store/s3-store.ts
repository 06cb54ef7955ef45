// A store in an S3 bucket. Creates are exclusive by `If-None-Match: *`. A reply that settles nothing (409, 5xx, time-out,
// lost reply, 412 for what may be this very put) is settled by reading the key back and comparing bytes (R3).
import { randomBytes } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { open, rename, rm, stat } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import {
  AbortMultipartUploadCommand,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  DeleteObjectCommand,
  HeadObjectCommand,
  ListMultipartUploadsCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  UploadPartCommand,
  type ListObjectsV2CommandOutput,
} from '@aws-sdk/client-s3';
import { sha256File, sha256Pieces } from './canonical.js';
import { checkKey, checkPrefix } from './layout.js';
import type { ObjectInfo, ObjectStore } from './object-store.js';
import type { S3Address } from './s3-address.js';
import { S3Connection } from './s3-connection.js';
import { transferMs } from './s3-deadlines.js';
import { S3Settler } from './s3-settler.js';
import { BadKey, isNoSpace, StoreFull, StoreUnavailable } from './store-errors.js';
import { reporting, type Transfer } from './transfer.js';

export interface S3Options {
  /** Bytes from which a file goes up in parts, and of one part; S3 wants ≥ 5 MiB. */
  partBytes?: number;
  /** Silence after which a request is given up. One as a whole has as long, and time for its bytes. */
  requestTimeoutMs?: number;
  /** Time within which an operation must be settled, and time for its bytes; a try that began before is awaited. */
  deadlineMs?: number;
}

const MAX_PARTS = 10_000;
const PARTS_AT_ONCE = 4;
const SHA256 = 'longhaul-sha256';

export function openS3Store(address: S3Address, options: S3Options = {}): ObjectStore {
  return new S3Store(address, options);
}

class S3Store implements ObjectStore {
  readonly address: string;
  readonly #s3: S3Connection;
  readonly #bucket: string;
  readonly #prefix: string;
  readonly #partBytes: number;
  readonly #settler: S3Settler;

  constructor(address: S3Address, options: S3Options) {
    const { bucket, prefix, endpoint, region } = address;
    const query = new URLSearchParams({
      ...(endpoint ? { endpoint } : {}),
      ...(region ? { region } : {}),
    }).toString();
    this.address = `s3://${bucket}${prefix && `/${prefix}`}${query && `?${query}`}`;
    this.#bucket = bucket;
    this.#prefix = prefix && `${prefix}/`;
    this.#partBytes = options.partBytes ?? 32 << 20;
    this.#settler = new S3Settler(this.address, options.deadlineMs ?? 120_000);
    this.#s3 = new S3Connection(address, options.requestTimeoutMs ?? 30_000);
  }

  async get(key: string): Promise<Uint8Array | null> {
    return this.#read(key, async (pieces) => {
      const bytes: Uint8Array[] = [];
      for await (const piece of pieces) bytes.push(piece);
      return Buffer.concat(bytes);
    });
  }

  async head(key: string): Promise<ObjectInfo | null> {
    const found = await this.#headWithDigest(key);
    return found && { key, size: found.size, modified: found.modified };
  }

  async create(key: string, bytes: Uint8Array): Promise<'created' | 'exists'> {
    const Key = this.#key(key);
    return this.#settler.create(
      key,
      () =>
        this.#s3.send(
          new PutObjectCommand({
            Bucket: this.#bucket,
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
    if (size <= this.#partBytes) {
      const file = await open(path);
      try {
        const answer = await this.create(key, await file.readFile({ ...(signal ? { signal } : {}) }));
        onProgress?.(size);
        return answer;
      } finally {
        await file.close();
      }
    }
    // Gigabytes must not go up to be refused at the end.
    if (await this.head(key)) return 'exists';
    return this.#createInParts(key, path, size, transfer);
  }

  async getToFile(key: string, path: string, { signal, onProgress }: Transfer = {}): Promise<boolean> {
    const temporary = `${path}.${randomBytes(6).toString('hex')}.part`;
    try {
      const found = await this.#read(
        key,
        async (pieces) => {
          const told = reporting(pieces, onProgress);
          await pipeline(told, createWriteStream(temporary), signal ? { signal } : {});
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
    const pieces = await this.#read(key, (begun) => Promise.resolve(begun));
    return pieces && this.#retryable(key, pieces);
  }

  async *list(prefix: string): AsyncIterable<ObjectInfo> {
    checkPrefix(prefix);
    for await (const page of this.#pages(prefix, null)) {
      for (const { Key = '', Size = 0, LastModified } of page.Contents ?? []) {
        // Some servers list folders as empty objects; no key of ours ends in a slash.
        if (Key.endsWith('/')) continue;
        yield { key: Key.slice(this.#prefix.length), size: Size, modified: LastModified ?? new Date(0) };
      }
    }
  }

  async listFolder(prefix: string): Promise<string[]> {
    checkPrefix(prefix);
    if (prefix !== '' && !prefix.endsWith('/'))
      throw new BadKey(`"${prefix}" is no folder: it must end in "/"`);
    const names = new Set<string>();
    const skip = this.#prefix.length + prefix.length;
    for await (const page of this.#pages(prefix, '/')) {
      for (const { Prefix = '' } of page.CommonPrefixes ?? []) names.add(Prefix.slice(skip));
      for (const { Key = '' } of page.Contents ?? []) if (!Key.endsWith('/')) names.add(Key.slice(skip));
    }
    return [...names].sort();
  }

  async delete(key: string): Promise<void> {
    const Key = this.#key(key);
    await this.#settler.request(`delete ${key}`, () =>
      this.#s3.send(new DeleteObjectCommand({ Bucket: this.#bucket, Key })),
    );
  }

  async sweep(olderThanMs: number): Promise<number> {
    const limit = Date.now() - olderThanMs;
    let swept = 0;
    let marker: { KeyMarker?: string; UploadIdMarker?: string } = {};
    for (;;) {
      const reply = await this.#s3.send(
        new ListMultipartUploadsCommand({ Bucket: this.#bucket, Prefix: this.#prefix, ...marker }),
      );
      for (const { Key, UploadId, Initiated } of reply.Uploads ?? []) {
        if (Key === undefined || UploadId === undefined || (Initiated?.getTime() ?? Infinity) > limit)
          continue;
        await this.#abandon(Key, UploadId);
        swept++;
      }
      if (!reply.IsTruncated || reply.NextKeyMarker === undefined) return swept;
      marker = {
        KeyMarker: reply.NextKeyMarker,
        ...(reply.NextUploadIdMarker ? { UploadIdMarker: reply.NextUploadIdMarker } : {}),
      };
    }
  }

  #key(key: string): string {
    return this.#prefix + checkKey(key);
  }

  async #createInParts(
    key: string,
    path: string,
    size: number,
    transfer: Transfer,
  ): Promise<'created' | 'exists'> {
    const Key = this.#key(key);
    const { signal } = transfer;
    const { sha256 } = await sha256File(path, signal);
    const target = { Bucket: this.#bucket, Key };
    const begun = await this.#settler.request(
      `begin upload of ${key}`,
      () =>
        this.#s3.send(new CreateMultipartUploadCommand({ ...target, Metadata: { [SHA256]: sha256 } }), {
          signal,
        }),
      signal,
    );
    const UploadId = begun?.UploadId;
    if (UploadId === undefined) throw new StoreUnavailable(`${this.address} began no upload of ${key}`);
    let answer: 'created' | 'exists' | null = null;
    try {
      const Parts = await this.#uploadParts({ ...target, UploadId }, path, size, transfer);
      answer = await this.#settler.create(
        key,
        () =>
          this.#s3.send(
            new CompleteMultipartUploadCommand({
              ...target,
              UploadId,
              MultipartUpload: { Parts },
              IfNoneMatch: '*',
            }),
            // The server may have to copy every part.
            { bytes: size, signal },
          ),
        size,
        async () => {
          const stored = await this.#headWithDigest(key);
          if (!stored || stored.size !== size) return stored && false;
          if (stored.sha256 !== undefined) return stored.sha256 === sha256;
          const pieces = await this.stream(key);
          return pieces && (await sha256Pieces(pieces)).sha256 === sha256;
        },
      );
      return answer;
    } finally {
      if (answer !== 'created') await this.#abandon(Key, UploadId).catch(() => undefined);
    }
  }

  async #uploadParts(
    target: { Bucket: string; Key: string; UploadId: string },
    path: string,
    size: number,
    { signal, onProgress }: Transfer,
  ): Promise<{ PartNumber: number; ETag: string }[]> {
    const partBytes = Math.max(this.#partBytes, Math.ceil(size / MAX_PARTS));
    const parts: { PartNumber: number; ETag: string }[] = [];
    const file = await open(path);
    let [next, moved] = [0, 0];
    const upload = async () => {
      while (next * partBytes < size) {
        const index = next++;
        const body = Buffer.alloc(Math.min(partBytes, size - index * partBytes));
        const { bytesRead } = await file.read(body, 0, body.length, index * partBytes);
        if (bytesRead !== body.length) throw new Error(`${path} became shorter while it was uploaded`);
        const reply = await this.#settler.request(
          `upload part ${index + 1} of ${target.Key}`,
          () =>
            this.#s3.send(new UploadPartCommand({ ...target, PartNumber: index + 1, Body: body }), {
              bytes: body.length,
              signal,
            }),
          signal,
        );
        if (reply?.ETag === undefined)
          throw new StoreUnavailable(`${this.address} lost the upload of ${target.Key}`);
        parts[index] = { PartNumber: index + 1, ETag: reply.ETag };
        onProgress?.((moved += body.length));
      }
    };
    const uploads = Array.from({ length: PARTS_AT_ONCE }, upload);
    try {
      await Promise.all(uploads);
    } finally {
      next = Infinity;
      await Promise.allSettled(uploads);
      await file.close();
    }
    return parts;
  }

  /**
   * Null where there is no such object. An object whose bytes break off is read again from its start; what `use` itself throws
   * says nothing about the store and is thrown at once.
   */
  async #read<T>(
    key: string,
    use: (pieces: AsyncIterable<Uint8Array>) => Promise<T>,
    signal?: AbortSignal,
  ): Promise<T | null> {
    const target = { Bucket: this.#bucket, Key: this.#key(key) };
    const read = await this.#settler.request<{ value: T } | { failure: unknown }>(
      `get ${key}`,
      async (prolong) => {
        const { size, pieces } = await this.#s3.open(target, signal);
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

  /** A stream's reader has had a part of it already: only he can begin anew. */
  async *#retryable(key: string, pieces: AsyncIterable<Uint8Array>): AsyncIterable<Uint8Array> {
    try {
      yield* pieces;
    } catch (error) {
      throw new StoreUnavailable(`${this.address} broke off in the middle of ${key}: ${String(error)}`, {
        cause: error,
      });
    }
  }

  async #headWithDigest(
    key: string,
  ): Promise<{ size: number; modified: Date; sha256: string | undefined } | null> {
    const Key = this.#key(key);
    const reply = await this.#settler.request(`head ${key}`, () =>
      this.#s3.send(new HeadObjectCommand({ Bucket: this.#bucket, Key })),
    );
    return (
      reply && {
        size: reply.ContentLength ?? 0,
        modified: reply.LastModified ?? new Date(0),
        sha256: reply.Metadata?.[SHA256],
      }
    );
  }

  async #abandon(Key: string, UploadId: string): Promise<void> {
    await this.#settler.ask(() =>
      this.#s3.send(new AbortMultipartUploadCommand({ Bucket: this.#bucket, Key, UploadId })),
    );
  }

  async *#pages(prefix: string, delimiter: '/' | null): AsyncIterable<ListObjectsV2CommandOutput> {
    let ContinuationToken: string | undefined;
    do {
      const page: ListObjectsV2CommandOutput | null = await this.#settler.request(`list ${prefix}`, () =>
        this.#s3.send(
          new ListObjectsV2Command({
            Bucket: this.#bucket,
            Prefix: this.#prefix + prefix,
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
