// The kind `openenv`: any OpenEnv server, and the built-in one where the spec names none.
import { keepSecret } from '../../base/known-secrets.js';
import type { EnvironmentSpec } from '../../spec/run-spec.js';
import type { EnvironmentHost, EnvironmentKind } from '../environment-kind.js';
import { createOpenEnvBackend } from './openenv-backend.js';
import { serverOptionsOf } from './server-options.js';

export const openEnvKind: EnvironmentKind = {
  backend(spec, callTimeoutMs, host) {
    const url = spec.url ?? host.url;
    if (!url) {
      throw new Error(
        `environment ${spec.env_key} has no url, and this worker has no built-in server: ` +
          'give environments[].url in the spec, or start the worker with --environments',
      );
    }
    const gradingToken = gradingTokenOf(spec, host);
    const { fault_rate: faultRate, tool_error_rate: toolErrorRate } = spec;
    const said = serverOptionsOf(spec);
    // Also for a backend that is there already: a later run may name fewer.
    const maxSessions = host.placesOf(url, spec.max_sessions);
    return {
      key: JSON.stringify([url, gradingToken ?? null, faultRate, toolErrorRate, callTimeoutMs, said]),
      create: () =>
        createOpenEnvBackend({
          ...{ url, ...said, maxSessions, callTimeoutMs },
          ...(host.made ? { made: host.made } : {}),
          ...(gradingToken ? { gradingToken, faultRate, toolErrorRate } : {}),
        }),
    };
  },
};

function gradingTokenOf(spec: EnvironmentSpec, { token: own }: EnvironmentHost): string | undefined {
  const named = spec.grading_token_env;
  const token = named ? process.env[named] : spec.url ? undefined : own;
  if (named && !token)
    throw new Error(
      `environment ${spec.env_key} takes its grading token from ${named}, but this variable is not set for the worker`,
    );
  keepSecret(token);
  return token;
}
