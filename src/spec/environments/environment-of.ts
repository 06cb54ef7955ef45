// Finds the environment of a task.

/** The entry with this key, or the one for all keys. */
export function environmentOf<Entry extends { env_key: string }>(
  environments: readonly Entry[],
  envKey: string,
): Entry | undefined {
  const named = environments.find(({ env_key }) => env_key === envKey);
  return named ?? environments.find(({ env_key }) => env_key === '*');
}
