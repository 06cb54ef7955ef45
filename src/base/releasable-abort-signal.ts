// One signal for several that can be released. Node keeps the result of `AbortSignal.any`, once it has a listener, for as long as it may
// still abort, with all that its listeners hold: a worker that lives for days would keep every activity it ever ran.

export interface JoinedSignal {
  signal: AbortSignal;
  /** Call when the signal is no longer needed: it stops following the others. */
  release(): void;
}

/** Aborts with the first of `sources`, for the same reason. */
export function joinSignals(sources: readonly AbortSignal[]): JoinedSignal {
  const joined = new AbortController();
  const followed = sources.map((source) => ({ source, rise: () => joined.abort(source.reason) }));
  for (const { source, rise } of followed) {
    if (source.aborted) rise();
    else source.addEventListener('abort', rise, { once: true });
  }
  const release = (): void => {
    for (const { source, rise } of followed) source.removeEventListener('abort', rise);
  };
  return { signal: joined.signal, release };
}
