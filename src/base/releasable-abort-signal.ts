// Joins several abort signals into one that can be released. Node keeps the result of `AbortSignal.any` alive while it has a listener and
// may still abort, together with everything its listeners refer to. A worker that runs for days would keep every activity it ever ran.

interface JoinedSignal {
  signal: AbortSignal;
  /** Call when the signal is no longer needed; it then stops following its sources. */
  release(): void;
}

/** The joined signal aborts with the first of `sources`, for the same reason. */
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
