// Uploads large files in parts. A create-only request completes the upload; `sweep` removes unfinished uploads (R31).
import { open } from 'node:fs/promises';
import {
  AbortMultipartUploadCommand,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  ListMultipartUploadsCommand,
  UploadPartCommand,
} from '@aws-sdk/client-s3';
import { sha256File } from '../../base/sha256.js';
import type { S3Connection } from './s3-connection.js';
import type { S3Settler } from './s3-settler.js';
import { StoreUnavailable } from '../record-errors.js';
import type { Transfer } from './transfer.js';

const maxParts = 10_000;
const partsAtOnce = 4;

/** Metadata name of the content's sha256. A multipart object needs it: its ETag is no digest of the content. */
export const sha256Metadata = 'longhaul-sha256';

interface S3MultipartOptions {
  s3: S3Connection;
  settler: S3Settler;
  /** The store's address, for messages. */
  address: string;
  bucket: string;
  /** Prefix of every key of the store: empty, or ending in a slash. */
  prefix: string;
  partBytes: number;
}

interface Upload {
  Bucket: string;
  Key: string;
  UploadId: string;
}

export class S3Multipart {
  constructor(private readonly options: S3MultipartOptions) {}

  /** `isStored` says whether the key holds the content with this sha256; null if the key holds nothing. */
  async create(
    key: string,
    { path, size }: { path: string; size: number },
    isStored: (sha256: string) => Promise<boolean | null>,
    transfer: Transfer,
  ): Promise<'created' | 'exists'> {
    const { s3, settler, address, bucket, prefix } = this.options;
    const { signal } = transfer;
    const { sha256 } = await sha256File(path, signal);
    const target = { Bucket: bucket, Key: prefix + key };
    const begun = await settler.request(
      `begin upload of ${key}`,
      () =>
        s3.send(new CreateMultipartUploadCommand({ ...target, Metadata: { [sha256Metadata]: sha256 } }), {
          signal,
        }),
      signal,
    );
    if (begun?.UploadId === undefined) throw new StoreUnavailable(`${address} began no upload of ${key}`);
    const upload = { ...target, UploadId: begun.UploadId };
    let answer: 'created' | 'exists' | null = null;
    try {
      const Parts = await this.uploadParts(upload, path, size, transfer);
      answer = await settler.create(
        key,
        () =>
          s3.send(
            new CompleteMultipartUploadCommand({ ...upload, MultipartUpload: { Parts }, IfNoneMatch: '*' }),
            // The server may have to copy every part.
            { bytes: size, signal },
          ),
        size,
        () => isStored(sha256),
      );
      return answer;
    } finally {
      if (answer !== 'created') await this.abandon(upload).catch(() => undefined);
    }
  }

  /** Removes the parts of uploads begun more than `olderThanMs` ago; returns the number of uploads. */
  async sweep(olderThanMs: number): Promise<number> {
    const { s3, bucket, prefix } = this.options;
    const limit = Date.now() - olderThanMs;
    let swept = 0;
    let marker: { KeyMarker?: string; UploadIdMarker?: string } = {};
    for (;;) {
      const reply = await s3.send(
        new ListMultipartUploadsCommand({ Bucket: bucket, Prefix: prefix, ...marker }),
      );
      for (const { Key, UploadId, Initiated } of reply.Uploads ?? []) {
        if (Key === undefined || UploadId === undefined || (Initiated?.getTime() ?? Infinity) > limit)
          continue;
        await this.abandon({ Bucket: bucket, Key, UploadId });
        swept++;
      }
      if (!reply.IsTruncated || reply.NextKeyMarker === undefined) return swept;
      marker = {
        KeyMarker: reply.NextKeyMarker,
        ...(reply.NextUploadIdMarker ? { UploadIdMarker: reply.NextUploadIdMarker } : {}),
      };
    }
  }

  private async uploadParts(
    upload: Upload,
    path: string,
    size: number,
    { signal, onProgress }: Transfer,
  ): Promise<{ PartNumber: number; ETag: string }[]> {
    const { s3, settler, address } = this.options;
    const partBytes = Math.max(this.options.partBytes, Math.ceil(size / maxParts));
    const parts: { PartNumber: number; ETag: string }[] = [];
    const file = await open(path);
    let [next, moved] = [0, 0];
    const uploadNext = async () => {
      while (next * partBytes < size) {
        const index = next++;
        const body = Buffer.alloc(Math.min(partBytes, size - index * partBytes));
        const { bytesRead } = await file.read(body, 0, body.length, index * partBytes);
        if (bytesRead !== body.length) throw new Error(`${path} became shorter while it was uploaded`);
        const reply = await settler.request(
          `upload part ${index + 1} of ${upload.Key}`,
          () =>
            s3.send(new UploadPartCommand({ ...upload, PartNumber: index + 1, Body: body }), {
              bytes: body.length,
              signal,
            }),
          signal,
        );
        if (reply?.ETag === undefined)
          throw new StoreUnavailable(`${address} lost the upload of ${upload.Key}`);
        parts[index] = { PartNumber: index + 1, ETag: reply.ETag };
        onProgress?.((moved += body.length));
      }
    };
    const uploads = Array.from({ length: partsAtOnce }, uploadNext);
    try {
      await Promise.all(uploads);
    } finally {
      next = Infinity;
      await Promise.allSettled(uploads);
      await file.close();
    }
    return parts;
  }

  private async abandon(upload: Upload): Promise<void> {
    const { s3, settler } = this.options;
    await settler.ask(() => s3.send(new AbortMultipartUploadCommand(upload)));
  }
}
