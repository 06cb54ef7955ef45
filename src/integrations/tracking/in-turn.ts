// Runs one piece of work at a time: work that timed out may still run, and until it ends no other work touches the same file.

type InTurn = <T>(signal: AbortSignal, work: () => Promise<T>) => Promise<T>;

/** If the caller gives up while its work waits for its turn, the work does not begin. */
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
