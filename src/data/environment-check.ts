// Refuses a run whose environment servers nobody can play on, when it starts: a wrong address or contract must not wait for the first episodes.
import { EnvironmentError } from '../environments/environment.js';
import { OpenEnvServer } from '../environments/openenv/openenv-server.js';
import { serverOptionsOf } from '../environments/openenv/server-options.js';
import { InvalidSpec, type SpecProblem } from '../spec/invalid-spec.js';
import type { EnvironmentSpec } from '../spec/run-spec.js';

const withinMs = 5_000;

/** Throws `InvalidSpec`, which names each such server. One that does not answer may only be starting: episodes wait for it. */
export async function refuseUnplayable(
  environments: readonly EnvironmentSpec[],
  signal: AbortSignal = new AbortController().signal,
): Promise<void> {
  const asked = environments.map((environment, index) => problemOf(environment, index, signal));
  const problems = (await Promise.all(asked)).filter((problem) => problem !== null);
  if (problems.length > 0) throw new InvalidSpec(problems);
}

async function problemOf(
  environment: EnvironmentSpec,
  index: number,
  signal: AbortSignal,
): Promise<SpecProblem | null> {
  const { url, headers_env } = environment;
  // This process may lack what the node workers send.
  if (url === undefined || (headers_env !== undefined && !process.env[headers_env])) return null;
  try {
    await new OpenEnvServer({ ...serverOptionsOf(environment), url }).look(withinMs, signal);
    return null;
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof EnvironmentError && error.kind === 'unavailable') return null;
    const fix = 'correct the url, or what the spec says of the server';
    return { path: `environments[${index}]`, problem: (error as Error).message, fix };
  }
}
