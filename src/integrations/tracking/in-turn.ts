// One piece of work at a time. Work that its caller gave up may still be under way: no other work touches the same file until it has ended.

export type InTurn = <T>(signal: AbortSignal, work: () => Promise<T>) => Promise<T>;

/** Work is not begun if its caller gave up while it waited for its turn. */
export function createInTurn(): InTurn {
  let last: Promise<unknown> = Promise.resolve();
  return (signal, work) => {
    const mine = last.then(() => {
      signal.throwIfAborted();
      return work();
    });
    last = mine.catch(() => undefined);
    return mine;
  };
}
