// Works through a list with a limited number of items at once. An item that only waits can free its place for the next one.

/**
 * Starts the items in order, at most `places` at a time. `begin` may call `free` before it ends. Resolves when all items have ended;
 * rejects with the first error. `signal`: starts no further item.
 */
export async function inPlaces<T>(
  items: readonly T[],
  places: number,
  begin: (item: T, free: () => void) => Promise<void>,
  signal?: AbortSignal,
): Promise<void> {
  const left = [...items];
  const begun: Promise<void>[] = [];
  const place = async (): Promise<void> => {
    for (let item = left.shift(); item !== undefined && !signal?.aborted; item = left.shift()) {
      const own = item;
      await new Promise<void>((free) => {
        const ended = begin(own, free).finally(free);
        // The error is thrown below, when all items have ended.
        ended.catch(() => undefined);
        begun.push(ended);
      });
    }
  };
  await Promise.all(Array.from({ length: places }, place));
  await Promise.all(begun);
}
