// Many objects at once, but not all: a store answers one by one in tens of milliseconds and has few sockets.

const atOnce = 32;

/**
 * Results in the order of `items`; at most 32 of `work` are under way. The first failure is thrown, and no further item is
 * begun.
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
