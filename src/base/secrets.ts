// Removes secrets from text. A server's answer may repeat what was sent to it, for example a key or a header. The sender of a secret
// removes it from the answer before the answer is logged or recorded.

/** Shorter texts are not treated as secrets: removing them would make messages unreadable. */
const shortestSecret = 8;
const removed = '[secret removed]';

/** Removes the secrets from the text in every form: plain, in JSON, in a URL, and in base64. */
export function withoutSecrets(text: string, secrets: readonly (string | undefined)[]): string {
  const known = secrets.filter((secret) => secret !== undefined && secret.length >= shortestSecret);
  return known.flatMap((secret) => writings(secret as string)).reduce(without, text);
}

function without(text: string, writing: string): string {
  return text.includes(writing) ? text.replaceAll(writing, removed) : text;
}

/** All forms of a secret, the longest first, because one form may be part of another. */
export function writings(secret: string): string[] {
  const base64 = (encoding: 'base64' | 'base64url') =>
    Buffer.from(secret).toString(encoding).replace(/=+$/, '');
  const all = [
    secret,
    inJson(secret),
    // Tool results are JSON inside JSON.
    inJson(inJson(secret)),
    encodeURIComponent(secret),
    base64('base64'),
    base64('base64url'),
  ];
  return [...new Set(all)].sort((a, b) => b.length - a.length);
}

const inJson = (text: string): string => JSON.stringify(text).slice(1, -1);

/** The part of a user's URL that may contain a secret, or null. The URL itself is not returned. */
export function secretInUrl(text: string): 'user and password' | 'query' | null {
  // Works on the text instead of a parsed URL: a text that cannot be parsed may contain a secret too.
  const [, authority = '', rest = ''] = /^(?:[a-z][a-z0-9+.-]*:)?\/\/([^/?#]*)(.*)$/is.exec(text) ?? [];
  if (authority.includes('@')) return 'user and password';
  return /[?#]/.test(rest) ? 'query' : null;
}

/** Usual names of variables that hold secrets. */
const secretNames =
  /(^|_)(TOKEN|SECRET|SECRET_KEY|PASSWORD|PASSWD|API_KEY|ACCESS_KEY|ACCESS_KEY_ID|PRIVATE_KEY|KEY_DATA|CREDENTIALS?)$|^TEMPORAL_GRPC_META_/;

export function isSecretName(variable: string): boolean {
  return secretNames.test(variable);
}

/** Keys of settings that hold secrets in other tools: `hf_token`, `apiKey`, `wandb_api_key`. Neither `max_tokens` nor `eos_token` is one. */
export function isSecretKey(key: string): boolean {
  const words = key.replaceAll(/([a-z\d])([A-Z])/g, '$1_$2').toLowerCase();
  if (/secret|passw|credential|(api|access|private|auth)[_-]?(key|token)/.test(words)) return true;
  return /(^|[_.-])token$/.test(words) && !modelTokens.test(words);
}

/** Names in model configurations that end in `token` but mean tokens of the vocabulary, or numbers of tokens. */
const modelTokens =
  /(^|[_.-])(bos|eos|pad|unk|sep|cls|mask|stop|end|start|image|video|audio|special|think|tool|per|max|new|min|num|each|of|by|next|last|first)[_-]token$/;
