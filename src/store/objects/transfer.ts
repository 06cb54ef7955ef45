// A file on its way between a disk and the store: when to stop, and whom to tell that its bytes move.

export interface Transfer {
  signal?: AbortSignal | undefined;
  /** Told the bytes moved so far; a try that begins anew counts from 0. Between two calls at most 8 MiB or one part have moved. */
  onProgress?: ((bytes: number) => void) | undefined;
}

/** Half a minute on the slowest connection that is waited for; on the fastest, not so often that telling costs anything. */
const REPORT_BYTES = 8 << 20;

/** The same pieces; tells of them as they pass. */
export async function* reporting(
  pieces: AsyncIterable<Uint8Array>,
  onProgress: Transfer['onProgress'],
): AsyncGenerator<Uint8Array> {
  let [moved, told] = [0, 0];
  for await (const piece of pieces) {
    yield piece;
    moved += piece.length;
    if (moved - told < REPORT_BYTES) continue;
    told = moved;
    onProgress?.(moved);
  }
  if (moved > told) onProgress?.(moved);
}
