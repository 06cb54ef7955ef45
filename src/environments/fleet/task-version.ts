// Which environment of Fleet a task is for.
import type { Task } from '../../spec/records/task.js';

/** `env_key` may hold the version: `booking:v0.0.74`. */
export function versionOf({
  env_key,
  env_version,
}: Pick<Task, 'env_key' | 'env_version'>): [name: string, version: string | undefined] {
  const [name = '', version = env_version] = env_key.split(':', 2);
  return [name, version];
}
