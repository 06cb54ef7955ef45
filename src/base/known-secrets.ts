// What this process was told in confidence. Failures go into a workflow's history and log lines into files: neither may hold it,
// whoever repeated it — a server that quotes a key in its refusal above all.
import { isSecretName, withoutSecrets } from './secrets.js';

const known = new Set(secretsIn(process.env));

export function secretsIn(env: NodeJS.ProcessEnv): string[] {
  return Object.entries(env).flatMap(([name, value]) => (value && isSecretName(name) ? [value] : []));
}

/** For secrets that do not come by a variable with such a name. */
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
