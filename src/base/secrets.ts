// Text from outside may repeat what was sent there: servers quote keys and headers in their errors. The sender of a secret removes it from
// the answer before that is logged or recorded.

/** Shorter texts are not secrets, and removing them would garble the message. */
const shortestSecret = 8;
const removed = '[secret removed]';

/** The text without the secrets, in every form: plain, in JSON, in a URL, or in base64. */
export function withoutSecrets(text: string, secrets: readonly (string | undefined)[]): string {
  const known = secrets.filter((secret) => secret !== undefined && secret.length >= shortestSecret);
  return known.flatMap((secret) => writings(secret as string)).reduce(without, text);
}

function without(text: string, writing: string): string {
  return text.includes(writing) ? text.replaceAll(writing, removed) : text;
}

/** Every form, the longest first: one may be part of another. */
export function writings(secret: string): string[] {
  const base64 = (encoding: 'base64' | 'base64url') =>
    Buffer.from(secret).toString(encoding).replace(/=+$/, '');
  const all = [
    secret,
    inJson(secret),
    // Results of tools are JSON in JSON.
    inJson(inJson(secret)),
    encodeURIComponent(secret),
    base64('base64'),
    base64('base64url'),
  ];
  return [...new Set(all)].sort((a, b) => b.length - a.length);
}

const inJson = (text: string): string => JSON.stringify(text).slice(1, -1);

/** Where a URL from a person may hold a secret, or null; the URL itself is not repeated. */
export function secretInUrl(text: string): 'user and password' | 'query' | null {
  // Reads the text and not a parsed URL: a text that cannot be parsed must not be repeated either.
  const [, authority = '', rest = ''] = /^(?:[a-z][a-z0-9+.-]*:)?\/\/([^/?#]*)(.*)$/is.exec(text) ?? [];
  if (authority.includes('@')) return 'user and password';
  return /[?#]/.test(rest) ? 'query' : null;
}

/** Conventional names of variables that hold secrets. */
const secretNames =
  /(^|_)(TOKEN|SECRET|SECRET_KEY|PASSWORD|PASSWD|API_KEY|ACCESS_KEY|ACCESS_KEY_ID|PRIVATE_KEY|KEY_DATA|CREDENTIALS?)$|^TEMPORAL_GRPC_META_/;

export function isSecretName(variable: string): boolean {
  return secretNames.test(variable);
}
