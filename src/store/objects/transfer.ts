// A transfer of a file between a disk and the store: its abort signal and its progress callback.

export interface Transfer {
  signal?: AbortSignal | undefined;
  /** Called with the bytes moved so far, at least once every 8 MiB or part; a new try counts from 0 again. */
  onProgress?: ((bytes: number) => void) | undefined;
}

/** This transfer takes half a minute on the slowest accepted connection; on the fastest, the calls are rare enough to cost nothing. */
const reportBytes = 8 << 20;

/** Yields `pieces` unchanged and reports how many bytes have passed. */
export async function* reporting(
  pieces: AsyncIterable<Uint8Array>,
  onProgress: Transfer['onProgress'],
): AsyncGenerator<Uint8Array> {
  let [moved, reported] = [0, 0];
  for await (const piece of pieces) {
    yield piece;
    moved += piece.length;
    if (moved - reported < reportBytes) continue;
    reported = moved;
    onProgress?.(moved);
  }
  if (moved > reported) onProgress?.(moved);
}
