// Requests to an S3 service. Each has two time-outs, one for silence and one for the whole request, so no request waits for ever.
import type { Readable } from 'node:stream';
import {
  GetObjectCommand,
  S3Client,
  type $Command,
  type S3ClientResolvedConfig,
  type ServiceInputTypes,
  type ServiceOutputTypes,
} from '@aws-sdk/client-s3';
import type { S3Address } from './s3-address.js';
import { piecesWithin, transferMs } from './s3-deadlines.js';
import { StoreUnfit } from '../record-errors.js';

interface SendOptions {
  /** Bytes that the request uploads or that the service must copy; they prolong the time-out. */
  bytes?: number;
  signal?: AbortSignal | undefined;
}

export class S3Connection {
  private readonly client: S3Client;

  constructor(
    { endpoint, region }: S3Address,
    private readonly timeoutMs: number,
  ) {
    // The SDK warns that future versions drop this Node.js. Our SDK version is pinned, so the warning is of no use.
    process.env.AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED ??= 'true';
    this.client = new S3Client({
      ...(region || endpoint ? { region: region || process.env.AWS_REGION || 'us-east-1' } : {}),
      // Services other than AWS often support path-style addresses and plain bodies only.
      ...(endpoint ? { endpoint, forcePathStyle: true, requestChecksumCalculation: 'WHEN_REQUIRED' } : {}),
      // The store does its own retries: they are limited by time, and a put must know whether an earlier try may have stored the object.
      maxAttempts: 1,
      requestHandler: { connectionTimeout: 5_000, socketTimeout: timeoutMs, throwOnRequestTimeout: true },
    });
  }

  /** Resolves when the whole reply, with its body, has arrived. */
  async send<I extends ServiceInputTypes, O extends ServiceOutputTypes>(
    command: $Command<I, O, S3ClientResolvedConfig, ServiceInputTypes, ServiceOutputTypes>,
    { bytes = 0, signal }: SendOptions = {},
  ): Promise<O> {
    await this.requireRegion();
    const limitMs = Math.ceil(this.timeoutMs + transferMs(bytes));
    const late = AbortSignal.timeout(limitMs);
    try {
      return await this.client.send(command, {
        abortSignal: signal ? AbortSignal.any([signal, late]) : late,
      });
    } catch (error) {
      // The SDK's error does not say whether our time-out or the caller's signal aborted the request.
      if (!late.aborted || signal?.aborted) throw error;
      throw new Error(`no complete answer within ${limitMs / 1000} s`, { cause: error });
    }
  }

  /** An object's size and bytes. The time limit for the bytes follows from the size in the reply's headers. */
  async open(
    object: { Bucket: string; Key: string },
    signal?: AbortSignal,
  ): Promise<{ size: number; pieces: AsyncIterable<Uint8Array> }> {
    await this.requireRegion();
    const { Body, ContentLength: size = 0 } = await this.client.send(new GetObjectCommand(object), {
      requestTimeout: this.timeoutMs,
      ...(signal ? { abortSignal: signal } : {}),
    });
    return { size, pieces: piecesWithin(Body as Readable, this.timeoutMs + transferMs(size)) };
  }

  /** Resolves the region before the request: inside the request, a missing region looks like a network error, which would be retried. */
  private async requireRegion(): Promise<void> {
    try {
      await this.client.config.region();
    } catch (error) {
      throw new StoreUnfit(
        'no usable region; set AWS_REGION, or write "?region=…" at the end of the store address ' +
          `(${(error as Error).message})`,
        { cause: error },
      );
    }
  }
}
