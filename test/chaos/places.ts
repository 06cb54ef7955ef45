// Works through a list, so many of it at once; what only waits gives its place to the next one.

/**
 * Begins each item in order, at most `places` at a time. `begin` may call `free` before its end. Ends when all have ended, with the
 * first error of them. `signal`: no other is begun.
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
        // It is told when all have ended.
        ended.catch(() => undefined);
        begun.push(ended);
      });
    }
  };
  await Promise.all(Array.from({ length: places }, place));
  await Promise.all(begun);
}
