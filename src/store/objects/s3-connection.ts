// Requests to an S3 service, each with a time-out: for silence, and as a whole, so that none waits for ever.
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
import { StoreUnfit } from './store-errors.js';

export interface SendOptions {
  /** What the request carries or makes the service copy: it gets time for it. */
  bytes?: number;
  signal?: AbortSignal | undefined;
}

export class S3Connection {
  readonly #client: S3Client;

  constructor(
    { endpoint, region }: S3Address,
    private readonly timeoutMs: number,
  ) {
    // It warns of SDK versions to come, and this one is pinned: nobody who reads the warning could act on it.
    process.env.AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED ??= 'true';
    this.#client = new S3Client({
      ...(region || endpoint ? { region: region || process.env.AWS_REGION || 'us-east-1' } : {}),
      // Other services than AWS's own often know path-style addresses and plain bodies only.
      ...(endpoint ? { endpoint, forcePathStyle: true, requestChecksumCalculation: 'WHEN_REQUIRED' } : {}),
      // Retries are the store's: they are bounded by time, and a put must know whether an earlier try may have stored it.
      maxAttempts: 1,
      requestHandler: { connectionTimeout: 5_000, socketTimeout: timeoutMs, throwOnRequestTimeout: true },
    });
  }

  /** Answers when the whole reply is there, its body too. */
  async send<I extends ServiceInputTypes, O extends ServiceOutputTypes>(
    command: $Command<I, O, S3ClientResolvedConfig, ServiceInputTypes, ServiceOutputTypes>,
    { bytes = 0, signal }: SendOptions = {},
  ): Promise<O> {
    await this.#requireRegion();
    const limitMs = Math.ceil(this.timeoutMs + transferMs(bytes));
    const late = AbortSignal.timeout(limitMs);
    try {
      return await this.#client.send(command, {
        abortSignal: signal ? AbortSignal.any([signal, late]) : late,
      });
    } catch (error) {
      // The client's own error does not tell whose signal it was.
      if (!late.aborted || signal?.aborted) throw error;
      throw new Error(`no whole answer within ${limitMs / 1000} s`, { cause: error });
    }
  }

  /** An object's size and bytes. What they may take is known once the headers are there. */
  async open(
    object: { Bucket: string; Key: string },
    signal?: AbortSignal,
  ): Promise<{ size: number; pieces: AsyncIterable<Uint8Array> }> {
    await this.#requireRegion();
    const { Body, ContentLength: size = 0 } = await this.#client.send(new GetObjectCommand(object), {
      requestTimeout: this.timeoutMs,
      ...(signal ? { abortSignal: signal } : {}),
    });
    return { size, pieces: piecesWithin(Body as Readable, this.timeoutMs + transferMs(size)) };
  }

  /** Asked for by itself: in a request its error looks like one of the network, which is worth another try. */
  async #requireRegion(): Promise<void> {
    try {
      await this.#client.config.region();
    } catch (error) {
      throw new StoreUnfit(
        'no usable region; set AWS_REGION, or write "?region=…" at the end of the store address ' +
          `(${(error as Error).message})`,
        { cause: error },
      );
    }
  }
}
