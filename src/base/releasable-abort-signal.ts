// One signal for several, that leaves nothing behind. Node keeps what `AbortSignal.any` makes, once somebody listens to it, for as
// long as it may still rise, with all that its listeners hold: a worker that lives for days would keep every activity it ever ran.

export interface JoinedSignal {
  signal: AbortSignal;
  /** Call when nobody needs it any more: it no longer follows the others. */
  release(): void;
}

/** Rises with the first of `sources`, for the same reason. */
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
