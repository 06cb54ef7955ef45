// The secrets that this process was given. Failures go into a workflow's history and log lines into files: neither may hold a secret, even
// if a server repeats it — a refusal that quotes a key above all.
import { isSecretName, withoutSecrets } from './secrets.js';

const known = new Set(secretsIn(process.env));

export function secretsIn(env: NodeJS.ProcessEnv): string[] {
  return Object.entries(env).flatMap(([name, value]) => (value && isSecretName(name) ? [value] : []));
}

/** For secrets that are not in a variable with such a name. */
export function keepSecret(secret: string | undefined): void {
  if (secret !== undefined) known.add(secret);
}

export function withoutKnownSecrets(text: string): string {
  return withoutSecrets(text, [...known]);
}

/** The same error, without secrets in its message, its stack, and those of its causes. */
export function censored(error: Error): Error {
  for (
    let inner: unknown = error, depth = 0;
    inner instanceof Error && depth < 20;
    inner = inner.cause, depth++
  ) {
    const message = withoutKnownSecrets(inner.message);
    const stack = inner.stack === undefined ? undefined : withoutKnownSecrets(inner.stack);
    if (message !== inner.message) inner.message = message;
    if (stack !== undefined && stack !== inner.stack) inner.stack = stack;
  }
  return error;
}
