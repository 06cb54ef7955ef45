// Turns a spec's settings of an environment server into options of the client.
import { keepSecret } from '../../base/known-secrets.js';
import type { EnvironmentSpec } from '../../spec/run-spec.js';
import type { OpenEnvOptions } from './openenv-backend.js';

type FromSpec = Pick<
  OpenEnvOptions,
  | 'contract'
  | 'transport'
  | 'headers'
  | 'headersEnv'
  | 'sessions'
  | 'tools'
  | 'reward'
  | 'success_at'
  | 'no_call'
>;

/** Throws if the variable with the headers is not set, or holds something else. */
export function serverOptionsOf(spec: EnvironmentSpec): FromSpec {
  const { contract, transport, sessions, tools, reward, success_at, no_call, headers_env } = spec;
  return {
    ...(contract === undefined ? {} : { contract }),
    ...(transport === undefined ? {} : { transport }),
    ...(headers_env === undefined
      ? {}
      : { headers: headersIn(spec.env_key, headers_env), headersEnv: headers_env }),
    ...(sessions === undefined ? {} : { sessions }),
    ...(tools === undefined ? {} : { tools }),
    ...(reward === undefined ? {} : { reward }),
    ...(success_at === undefined ? {} : { success_at }),
    ...(no_call === undefined ? {} : { no_call }),
  };
}

/** One `Name: value` a line. Throws if the variable is not set here, or holds something else. */
export function headersIn(envKey: string, variable: string): Record<string, string> {
  const text = process.env[variable];
  if (!text)
    throw new Error(
      `environment ${envKey} takes its headers from ${variable}, but this variable is not set here: export it`,
    );
  const headers: Record<string, string> = {};
  for (const line of text.split('\n').filter((one) => one.trim() !== '')) {
    const match = /^\s*([A-Za-z0-9-]+):\s*(\S.*?)\s*$/.exec(line);
    if (!match?.[1] || !match[2])
      throw new Error(
        `environment ${envKey} takes its headers from ${variable}, where a line is not of the form "Name: value"`,
      );
    keepSecret(match[2]);
    headers[match[1]] = match[2];
  }
  return headers;
}
