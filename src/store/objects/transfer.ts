// A transfer of a file between a disk and the store: its abort signal and its progress callback.

export interface Transfer {
  signal?: AbortSignal | undefined;
  /** Called with the bytes moved so far; a new try counts from 0 again. Between two calls at most 8 MiB or one part have moved. */
  onProgress?: ((bytes: number) => void) | undefined;
}

/** Half a minute on the slowest accepted connection; rare enough on the fastest that reporting costs nothing. */
const reportBytes = 8 << 20;

/** The same pieces; reports their bytes as they pass. */
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
