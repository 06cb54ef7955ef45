// The kind `openenv`: any OpenEnv server, and the stack’s where the spec names none.
import { keepSecret } from '../../base/known-secrets.js';
import type { Task, ToolSpec } from '../../spec/records/task.js';
import type { EnvironmentSpec } from '../../spec/run-spec.js';
import { EnvironmentError } from '../environment.js';
import type { EnvironmentHost, EnvironmentKind, Refusal } from '../environment-kind.js';
import { inOrder } from '../tool-schema.js';
import { createOpenEnvBackend } from './openenv-backend.js';
import { OpenEnvServer } from './openenv-server.js';
import { askServerFacts } from './server-facts.js';
import { serverOptionsOf } from './server-options.js';

const lookMs = 5_000;

export const openEnvKind: EnvironmentKind = {
  backend(spec, callTimeoutMs, host) {
    const url = spec.url ?? host.url;
    if (!url) {
      throw new Error(
        `environment ${spec.env_key} has no url, and this worker has no server of its stack: ` +
          'give environments[].url in the spec, or start the worker with --environments',
      );
    }
    const gradingToken = gradingTokenOf(spec, host);
    const said = serverOptionsOf(spec);
    // Also for an existing backend, because a later run may allow fewer.
    const maxSessions = host.placesOf(url, spec.max_sessions);
    return {
      key: JSON.stringify([url, gradingToken ?? null, callTimeoutMs, said]),
      create: () =>
        createOpenEnvBackend({
          ...{ url, ...said, maxSessions, callTimeoutMs },
          ...(host.made ? { made: host.made } : {}),
          ...(gradingToken ? { gradingToken } : {}),
        }),
    };
  },
  refusal,
  opensWithinMs: 30_000,
  tools,
  facts: (spec, tasks, { timeoutMs, signal, fullIsEnough = false }) =>
    askServerFacts(
      {
        ...serverOptionsOf(spec),
        ...{ url: addressOf(spec), timeoutMs, fullIsEnough },
        gradesByToken: spec.grading_token_env !== undefined,
      },
      tasks,
      signal,
    ),
};

/** A server that does not answer may only be starting: episodes wait for it. */
async function refusal(
  spec: EnvironmentSpec,
  _tasks: readonly Task[],
  signal: AbortSignal,
): Promise<Refusal | null> {
  const { url, headers_env } = spec;
  // This process may lack the headers that node workers send.
  if (url === undefined || (headers_env !== undefined && !process.env[headers_env])) return null;
  try {
    await new OpenEnvServer({ ...serverOptionsOf(spec), url }).look(lookMs, signal);
    return null;
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof EnvironmentError && error.kind === 'unavailable') return null;
    return { problem: (error as Error).message, fix: 'correct the url, or what the spec says of the server' };
  }
}

/** Uses a new backend each time: the circuit breaker of a used backend, opened by earlier failures, would hide the current problem. */
async function tools(
  spec: EnvironmentSpec,
  task: Task,
  { timeoutMs, signal }: { timeoutMs: number; signal: AbortSignal },
): Promise<ToolSpec[]> {
  const { grading_token_env: tokenName } = spec;
  const gradingToken = tokenName === undefined ? undefined : process.env[tokenName];
  const server = {
    ...{ url: addressOf(spec), ...serverOptionsOf(spec), callTimeoutMs: timeoutMs },
    ...(gradingToken ? { gradingToken } : {}),
  };
  const asked = new OpenEnvServer(server);
  const found = await asked.look(timeoutMs, signal).catch(() => null);
  if (found?.contract.act) return [found.contract.act];
  // A server without sockets has only one world, and a reset would end the episode that plays there.
  const listed = found?.transport === 'http' ? await asked.toolsWithoutEpisode(timeoutMs) : [];
  // In the same order as for episodes (`KnownTools`).
  if (listed.length > 0) return inOrder(listed);
  const backend = createOpenEnvBackend({ ...server, maxSessions: 1 });
  try {
    const options = { seed: 0, episodeId: `tools/${task.task_key}`, tryNumber: 0 };
    const environment = await backend.open(task, options, signal);
    await environment.close();
    return [...environment.tools];
  } finally {
    await backend.close();
  }
}

function addressOf({ env_key, url }: EnvironmentSpec): string {
  if (url === undefined) throw new Error(`environment ${env_key} has no url`);
  return url;
}

/** The token of the node's own server comes with its address, and is in no variable. */
function gradingTokenOf(spec: EnvironmentSpec, { url, token: own }: EnvironmentHost): string | undefined {
  const isOwn = own !== undefined && (spec.url ?? url) === url;
  const named = spec.grading_token_env;
  const token = isOwn ? own : named && process.env[named];
  if (named && !token) {
    const other = spec.url && url ? `; the spec names ${spec.url}, and this node’s own server is ${url}` : '';
    throw new Error(
      `environment ${spec.env_key} takes its grading token from ${named}, but this variable is not set for the worker${other}`,
    );
  }
  keepSecret(token);
  return token;
}
