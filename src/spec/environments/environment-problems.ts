// Finds problems of a spec's environments: of each entry alone, and of entries together.
import { name } from '../fields.js';
import type { SpecProblem } from '../invalid-spec.js';
import type { EnvironmentSpec, RunSpec } from '../run-spec.js';
import { usualTtlSeconds } from './environment-schema.js';

const ofServers = [
  'headers_env',
  'contract',
  'transport',
  'sessions',
  'tools',
  'reward',
  'success_at',
  'no_call',
] as const;
const ofFleet = ['api_key_env', 'region', 'ttl_s'] as const;

export function entryProblems(environments: readonly EnvironmentSpec[]): SpecProblem[] {
  const keys = environments.map(({ env_key }) => env_key);
  return environments.flatMap((environment, index) => {
    const path = `environments[${index}]`;
    const repeated: SpecProblem = {
      path: `${path}.env_key`,
      problem: `"${environment.env_key}" is listed twice`,
      fix: 'tasks find their environment by this key: make it unique',
    };
    const own =
      environment.kind === 'fleet' ? fleetProblems(environment, path) : serverProblems(environment, path);
    return [...(keys.indexOf(environment.env_key) < index ? [repeated] : []), ...own];
  });
}

function fleetProblems(environment: EnvironmentSpec, path: string): SpecProblem[] {
  const { grading_token_env } = environment;
  const named =
    ofServers.find((key) => environment[key] !== undefined) ??
    (grading_token_env === undefined ? undefined : 'grading_token_env');
  if (named === undefined) return [];
  return [{ path: `${path}.${named}`, problem: 'is for OpenEnv servers', fix: 'remove it: kind is fleet' }];
}

function serverProblems(environment: EnvironmentSpec, path: string): SpecProblem[] {
  const { env_key, url, max_sessions } = environment;
  const problems: SpecProblem[] = [];
  if (env_key === '*')
    problems.push({
      path: `${path}.env_key`,
      problem: '"*" stands for the environments of Fleet, and kind is not fleet',
      fix: 'set kind: fleet, or name the environment',
    });
  const fleet = ofFleet.find((key) => environment[key] !== undefined);
  if (fleet !== undefined)
    problems.push({
      path: `${path}.${fleet}`,
      problem: 'is for kind: fleet',
      fix: 'remove it, or set kind: fleet',
    });
  const named =
    ofServers.find((key) => environment[key] !== undefined) ??
    (max_sessions === undefined ? undefined : 'max_sessions');
  if (url === undefined && named !== undefined)
    problems.push({
      path: `${path}.${named}`,
      problem: 'it describes a server with a url of its own, and this entry has none',
      fix: 'give the url, or remove this setting',
    });
  if (environment.sessions === 'attached' && environment.transport === 'http')
    problems.push({
      path: `${path}.sessions`,
      problem: 'attached sessions are played over a socket, and transport is http',
      fix: 'remove one of them',
    });
  return problems;
}

/** Node's `fetch` waits 5 minutes for an answer. */
const longestCallS = 280;

/** Fleet must not end an instance before its episode. The time that the model takes is not known here. */
export function ttlProblems(
  environments: readonly EnvironmentSpec[],
  { max_turns, call_timeout_s }: RunSpec['generator'],
): SpecProblem[] {
  const longest = max_turns * call_timeout_s;
  if (call_timeout_s > longestCallS && environments.some(({ kind }) => kind === 'fleet'))
    return [
      {
        path: 'generator.call_timeout_s',
        problem: `a connection to Fleet ends after ${longestCallS} s without an answer`,
        fix: `lower it to ${longestCallS}`,
      },
    ];
  return environments.flatMap(({ kind, ttl_s = usualTtlSeconds }, index) =>
    kind === 'fleet' && ttl_s < longest
      ? [
          {
            path: `environments[${index}].ttl_s`,
            problem: `Fleet ends an instance after ${ttl_s} s, and ${max_turns} turns of at most ${call_timeout_s} s may take ${longest} s`,
            fix: `set ttl_s to more than ${longest}, or lower generator.max_turns or call_timeout_s`,
          },
        ]
      : [],
  );
}

/** The fix for rows of an environment that the spec does not list. Some `data_source`s of other trainers are no valid names, so they cannot be
 * listed. */
export function fixOfUnlisted(envKey: string): string {
  if (name.safeParse(envKey).success) return `add an entry with env_key: ${envKey}`;
  return (
    'an env_key has 1 to 64 letters, digits, ".", "_" or "-", and no dot first: ' +
    'give each row an env_key, which is used instead of its data_source or env_class'
  );
}
