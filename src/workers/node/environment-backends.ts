// Keeps one backend for each environment server and its settings; all episodes of this process share it.
import { keepSecret } from '../../base/known-secrets.js';
import type { EnvironmentBackend } from '../../environments/environment.js';
import { createOpenEnvBackend } from '../../environments/openenv/openenv-backend.js';
import { serverOptionsOf } from '../../environments/openenv/server-options.js';
import { createSemaphore, type Semaphore } from '../../environments/openenv/semaphore.js';
import type { EnvironmentSpec } from '../../spec/run-spec.js';
import { placesOfNode } from './server-capacity.js';

interface EnvironmentBackendsOptions {
  /** Server for specs that name none. */
  url: string | null;
  /** Grading token of that server. */
  token?: string;
}

export interface EnvironmentBackends {
  /** `callTimeoutMs`: time limit of a call. */
  backendFor(spec: EnvironmentSpec, callTimeoutMs: number): EnvironmentBackend;
  close(): Promise<void>;
}

export function environmentBackends({ url: ownUrl, token }: EnvironmentBackendsOptions): EnvironmentBackends {
  const backends = new Map<string, EnvironmentBackend>();
  // Backends with the same url share places, so that an episode that must play alone is alone on its server (R25).
  const places = new Map<string, Semaphore>();
  const placesOf = (url: string, most = placesOfNode): Semaphore => {
    const { href } = new URL(url);
    const known = places.get(href) ?? createSemaphore(placesOfNode);
    places.set(href, known);
    known.shrinkTo(most);
    return known;
  };
  return {
    backendFor: (spec, callTimeoutMs) => {
      const url = spec.url ?? ownUrl;
      if (!url) {
        throw new Error(
          `environment ${spec.env_key} has no url, and this worker has no built-in server: ` +
            'give environments[].url in the spec, or start the worker with --environments',
        );
      }
      const gradingToken = spec.grading_token_env
        ? process.env[spec.grading_token_env]
        : spec.url
          ? undefined
          : token;
      if (spec.grading_token_env && !gradingToken) {
        throw new Error(
          `environment ${spec.env_key} takes its grading token from ${spec.grading_token_env}, but this variable is not set for the worker`,
        );
      }
      keepSecret(gradingToken);
      const { fault_rate: faultRate, tool_error_rate: toolErrorRate } = spec;
      const said = serverOptionsOf(spec);
      const key = JSON.stringify([url, gradingToken ?? null, faultRate, toolErrorRate, callTimeoutMs, said]);
      const known = backends.get(key);
      if (known) return known;
      const backend = createOpenEnvBackend({
        url,
        ...said,
        maxSessions: placesOf(url, spec.max_sessions),
        callTimeoutMs,
        ...(gradingToken ? { gradingToken, faultRate, toolErrorRate } : {}),
      });
      backends.set(key, backend);
      return backend;
    },
    close: async () => {
      await Promise.all([...backends.values()].map((backend) => backend.close()));
    },
  };
}
