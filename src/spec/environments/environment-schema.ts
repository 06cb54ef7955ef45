// The schema of an environment's entry: what it is, where it is, and how it is played on.
import { z } from 'zod';
import { secretInUrl } from '../../base/secrets.js';
import { count, name, positive, text, variableName } from '../fields.js';

/** Two hours. */
export const usualTtlSeconds = 7200;

export const environment = z.strictObject({
  env_key: name.or(z.literal('*')).describe('as tasks name it; `*` (`kind: fleet`): any task’s'),
  kind: z
    .enum(['openenv', 'fleet'])
    .exactOptional()
    .describe('`fleet`: an instance of Fleet for each episode; absent: `openenv`'),
  url: z
    .url({ protocol: /^https?$/ })
    .refine((url) => secretInUrl(url) === null, {
      error:
        'must be http://host:port without user, password or query: a spec is recorded and shown, so it must not hold a ' +
        'secret. For a grading token, give the name of its environment variable in grading_token_env',
    })
    .exactOptional()
    .describe('URL of an OpenEnv server; absent: the server of the embedded stack, or Fleet’s own address'),
  api_key_env: variableName('key')
    .exactOptional()
    .describe('name of the environment variable with the key of Fleet; absent: `FLEET_API_KEY`'),
  region: text.exactOptional().describe('where Fleet makes the instances; absent: Fleet decides'),
  ttl_s: count
    .max(86_400)
    .exactOptional()
    .describe(
      `Fleet ends an instance after this time; longer than the longest episode; absent: ${usualTtlSeconds}`,
    ),
  grading_token_env: variableName('token')
    .exactOptional()
    .describe('name of the environment variable with the grading token'),
  headers_env: variableName('headers')
    .exactOptional()
    .describe('name of an environment variable with HTTP headers, one `Name: value` a line'),
  contract: z
    .enum(['mcp', 'gym'])
    .exactOptional()
    .describe(
      '`mcp`: the server lists tools; `gym`: it takes one kind of action, by a tool `act`; absent: as its `/schema` says',
    ),
  transport: z
    .enum(['ws', 'http'])
    .exactOptional()
    .describe('`http`: `POST /reset` and `/step`; absent: `ws` if the server has `/ws`'),
  sessions: z
    .enum(['socket', 'attached'])
    .exactOptional()
    .describe(
      '`attached`: an episode goes on after a lost socket (OpenEnv ≥ 0.5); absent: `socket`, it begins again in a fresh world',
    ),
  max_sessions: count
    .exactOptional()
    .describe('episodes of a node at once; absent: as many as the server or the Fleet account allows'),
  tools: z
    .enum(['episode', 'shared'])
    .exactOptional()
    .describe('`shared`: all tasks have the same tools, asked for once; absent: `episode`'),
  reward: z
    .enum(['last', 'sum'])
    .exactOptional()
    .describe(
      '`last`: the last observation’s reward is the grade; `sum`: the sum of all steps’ rewards; absent: `last`',
    ),
  success_at: positive
    .exactOptional()
    .describe('reward of a solved task; rewards are divided by it; absent: 1'),
  no_call: z
    .literal([0, 'unknown'])
    .exactOptional()
    .describe(
      'grade of an episode without a call if the reset gave no reward; absent: `unknown`, but 0 with `reward: sum` or `contract: gym`',
    ),
});

/** The entry with this key, or the one for all keys. */
export function environmentOf<Entry extends { env_key: string }>(
  environments: readonly Entry[],
  envKey: string,
): Entry | undefined {
  const named = environments.find(({ env_key }) => env_key === envKey);
  return named ?? environments.find(({ env_key }) => env_key === '*');
}

/** True if the entry means the server of the embedded stack. */
export function isOfStack({ url, kind }: { url?: string | undefined; kind?: string | undefined }): boolean {
  return url === undefined && kind !== 'fleet';
}
