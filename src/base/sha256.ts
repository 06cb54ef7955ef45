import { createHash, hash } from 'node:crypto';
import { createReadStream } from 'node:fs';

/** sha256 as 64 lower-case hex digits. */
export function sha256Hex(data: Uint8Array | string): string {
  return hash('sha256', data, 'hex');
}

/** sha256 and size in bytes of a file, read in pieces. */
export async function sha256File(
  path: string,
  signal?: AbortSignal,
): Promise<{ sha256: string; size: number }> {
  return sha256Pieces(createReadStream(path, { highWaterMark: 1 << 20, ...(signal ? { signal } : {}) }));
}

/** sha256 and size in bytes of data given in pieces; it need not fit in memory. */
export async function sha256Pieces(
  pieces: AsyncIterable<Uint8Array>,
): Promise<{ sha256: string; size: number }> {
  const hash = createHash('sha256');
  let size = 0;
  for await (const piece of pieces) {
    hash.update(piece);
    size += piece.length;
  }
  return { sha256: hash.digest('hex'), size };
}
