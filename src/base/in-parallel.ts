// Works on many objects in parallel, but not on all at once: a store takes tens of milliseconds for each, and sockets are few.

const atOnce = 32;

/**
 * Returns the results in the order of `items`; runs at most 32 calls of `work` at a time. After a failure it starts no further item and
 * throws that failure.
 */
export async function inParallel<T, R>(
  items: readonly T[],
  work: (item: T, index: number) => Promise<R>,
): Promise<R[]> {
  const results: R[] = new Array<R>(items.length);
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < items.length) {
      const index = next++;
      results[index] = await work(items[index] as T, index);
    }
  };
  const workers = Array.from({ length: Math.min(atOnce, items.length) }, worker);
  try {
    await Promise.all(workers);
  } finally {
    next = Infinity;
  }
  return results;
}
