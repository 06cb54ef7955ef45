// Counts the error messages of tools, without the values in them, in bounded memory.

/** Number of distinct patterns that one counter keeps. Later ones are counted together. */
const patternsKept = 500;
const longest = 140;
/** Only this many characters of a message are read. */
const readChars = 2_000;

export interface ErrorPattern {
  /** Null if the turn had no valid call. */
  tool: string | null;
  message: string;
  count: number;
  /** Id of the first transcript that has the pattern. */
  example: string;
}

/** Patterns by tool and message, in the order of first occurrence. */
export interface ErrorPatterns {
  kept: Map<string, ErrorPattern>;
  /** Errors beyond the limit of patterns. */
  others: number;
}

export function noErrors(): ErrorPatterns {
  return { kept: new Map(), others: 0 };
}

/** `message`: a result of `normalisedError`. */
export function addError(
  patterns: ErrorPatterns,
  { tool, message, example, count = 1 }: Omit<ErrorPattern, 'count'> & { count?: number },
): void {
  const key = JSON.stringify([tool, message]);
  const known = patterns.kept.get(key);
  if (known) known.count += count;
  else if (patterns.kept.size < patternsKept) patterns.kept.set(key, { tool, message, example, count });
  else patterns.others += count;
}

/** Sorted by frequency, the most frequent first; ties are sorted by message. */
export function ranked({ kept }: ErrorPatterns): ErrorPattern[] {
  return [...kept.values()].sort(
    (a, b) =>
      b.count - a.count || a.message.localeCompare(b.message) || (a.tool ?? '').localeCompare(b.tool ?? ''),
  );
}

/** The message with its values left out, at most 140 characters: `404 ISS-… of "…" is closed`. */
export function normalisedError(text: string): string {
  const plain = messageIn(text.slice(0, readChars).replace(/^\s*error:\s*/i, ''));
  const general = plain
    .replace(/"[^"]*"/g, '"…"')
    .replace(/(?<![\p{L}\p{N}])'[^']*'(?![\p{L}\p{N}])/gu, "'…'")
    .replace(/[\p{L}\p{N}_]+(?:[-.,:][\p{L}\p{N}_]+)*/gu, (word, at: number) =>
      at === 0 && isStatus(word) ? word : withoutValue(word),
    )
    .replace(/\s+/g, ' ')
    .trim();
  if (general === '') return '(no message)';
  return general.length <= longest ? general : `${general.slice(0, longest - 1).trimEnd()}…`;
}

/** Whether the word is an HTTP status, which is kept at the beginning of a message because it says what happened. */
function isStatus(word: string): boolean {
  return /^[45]\d\d$/.test(word);
}

/** `#` for a number or a name like 3QKK; `ISS-…` for ISS-QKFD, because the prefix says what kind of thing it is. */
function withoutValue(word: string): string {
  const kind = /^([A-Z]{2,})-[A-Z0-9-]+$/.exec(word)?.[1];
  if (kind !== undefined) return `${kind}-…`;
  return /\p{N}/u.test(word) ? '#' : word;
}

/** If the error is JSON, the message inside it. */
function messageIn(text: string): string {
  if (!text.trimStart().startsWith('{')) return text;
  try {
    const value = JSON.parse(text) as Record<string, unknown>;
    for (const name of ['error', 'message', 'detail']) {
      const said = value[name];
      if (typeof said === 'string' && said.trim() !== '') return said;
    }
  } catch {
    return text;
  }
  return text;
}
