// Finds the environment of a task, and distinguishes the stack's server from others.
import type { EnvironmentSpec } from '../run-spec.js';

/** The entry with this key, or the one for all keys. */
export function environmentOf<Entry extends { env_key: string }>(
  environments: readonly Entry[],
  envKey: string,
): Entry | undefined {
  const named = environments.find(({ env_key }) => env_key === envKey);
  return named ?? environments.find(({ env_key }) => env_key === '*');
}

/** True if the entry means the server of the embedded stack. */
export function isOfStack({ url, kind }: Pick<EnvironmentSpec, 'url' | 'kind'>): boolean {
  return url === undefined && kind !== 'fleet';
}
