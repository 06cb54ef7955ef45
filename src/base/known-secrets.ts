// The secrets that this process knows. Error messages go into workflow histories, and log lines into files; neither may contain a secret.
// Servers do repeat secrets, for example when they reject a key and quote it.
import { isSecretName, withoutSecrets } from './secrets.js';

const known = new Set(secretsIn(process.env));

export function secretsIn(env: NodeJS.ProcessEnv): string[] {
  return Object.entries(env).flatMap(([name, value]) => (value && isSecretName(name) ? [value] : []));
}

/** Adds a secret that is not in an environment variable with a secret's name. */
export function keepSecret(secret: string | undefined): void {
  if (secret !== undefined) known.add(secret);
}

export function withoutKnownSecrets(text: string): string {
  return withoutSecrets(text, [...known]);
}

/** Removes the secrets from the error's message and stack, and from those of its causes. Returns the same error. */
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
