// Keeps one backend for each environment server and its settings; all episodes of this process share it.
import type { EnvironmentBackend } from '../../environments/environment.js';
import type { EnvironmentHost } from '../../environments/environment-kind.js';
import { environmentKind } from '../../environments/environment-kinds.js';
import { createSemaphore, type Semaphore } from '../../environments/semaphore.js';
import type { EnvironmentSpec } from '../../spec/run-spec.js';

type EnvironmentBackendsOptions = Omit<EnvironmentHost, 'placesOf'>;

/** Sessions that a node opens on one server at once, unless its spec says less. */
const mostSessions = 400;

export interface EnvironmentBackends {
  /** `callTimeoutMs`: time limit of a call. */
  backendFor(spec: EnvironmentSpec, callTimeoutMs: number): EnvironmentBackend;
  close(): Promise<void>;
}

export function environmentBackends(options: EnvironmentBackendsOptions): EnvironmentBackends {
  const backends = new Map<string, EnvironmentBackend>();
  // Backends with the same url share places, so that an episode that must play alone is alone on its server (R25).
  const places = new Map<string, Semaphore>();
  const placesOf = (url: string, most = mostSessions): Semaphore => {
    const { href } = new URL(url);
    const known = places.get(href) ?? createSemaphore(mostSessions);
    places.set(href, known);
    known.limitTo(most);
    return known;
  };
  return {
    backendFor: (spec, callTimeoutMs) => {
      const { key, create } = environmentKind(spec).backend(spec, callTimeoutMs, { ...options, placesOf });
      const known = backends.get(key) ?? create();
      backends.set(key, known);
      return known;
    },
    close: async () => {
      await Promise.all([...backends.values()].map((backend) => backend.close()));
    },
  };
}
