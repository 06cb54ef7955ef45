// Encodes and decodes with any Hugging Face `tokenizer.json`. Short pieces of text are cached, because prompts begin alike and tool results
// repeat. Long texts are encoded in a worker thread. Text from outside is quoted first: the added tokens in it stay plain text.
import { Tokenizer as HubTokenizer } from '@huggingface/tokenizers';
import { startThread, type WorkerThread } from '../base/worker-thread.js';
import { controlTokens, type TextPart, TextQuotes, withoutControlTokens } from './quoted-text.js';
import { tokenBytes, type TokenizerFile } from './token-bytes.js';

/** Longer texts are encoded in a worker thread: 16 KB take about 15 ms, and the event loop must not block for 50 ms. */
const maxInlineChars = 16 * 1024;
const maxMemoChars = 4 * 1024;
const memoEntries = 4096;
const threadDeadlineMs = 60_000;
const threadEntry = new URL('./tokenizer-thread.js', import.meta.url);

/** A part of a decoded text: a control token, or the text between two of them. */
export interface DecodedPart {
  text: string;
  isControl: boolean;
}

export interface Tokenizer {
  readonly vocabSize: number;
  /** Ids of a text. Added tokens in it become their ids, except in quoted parts. A long text blocks the event loop. */
  encode(text: string): readonly number[];
  /** Returns the same ids; a text over 16 Ki characters is encoded in a worker thread. */
  encodeLong(text: string): Promise<readonly number[]>;
  /**
   * Quotes a text: its added tokens, except those in `allowed`, will be encoded as characters. A template may contain the quoted text, which must
   * then be encoded by this tokenizer. Text without added tokens does not change.
   */
  quote(text: string, allowed?: readonly string[]): string;
  /** Text of the ids, including special tokens. */
  decode(ids: readonly number[]): string;
  /** The same text, divided at control tokens. Characters that only look like a control token belong to the text around them. */
  decodeParts(ids: readonly number[]): DecodedPart[];
  /** Id of the added token with exactly this text. */
  addedToken(text: string): number | undefined;
  /** The longest added token at the start of the text. */
  leadingAddedToken(text: string): { text: string; id: number } | null;
  /** The bytes of each token, by id (see `token-bytes.ts`); computed on the first call. */
  bytes(): readonly Uint8Array[];
}

/** Throws an Error that says what is wrong with the file. */
export function loadTokenizer(tokenizerJson: string | Uint8Array): Tokenizer {
  const json =
    typeof tokenizerJson === 'string' ? tokenizerJson : Buffer.from(tokenizerJson).toString('utf8');
  const file = parsedFile(json);
  const control = usable(() => controlTokens(file));
  const quotes = new TextQuotes(control);
  const { isExact, foldsText } = usable(() => dividingOf(file));
  const hub = build(file);
  const added = new Map([...hub.get_added_tokens_decoder()].map(([id, token]) => [token.content, id]));
  const controlById = new Map(control.map((token) => [added.get(token), token]));
  const byLength = [...added].sort(([a], [b]) => b.length - a.length);
  const memo = new Map<string, readonly number[]>();
  const tokens = byLength.map(([token]) => token);
  // Nothing matches `(?!)`.
  const between = isExact && tokens.length > 0 ? anyOf(tokens) : /(?!)/;
  let plain: HubTokenizer | undefined;
  const encodeInThread = encodingThread(json);
  let bytes: readonly Uint8Array[] | undefined;

  function encodeStretch(text: string): readonly number[] {
    if (text === '') return [];
    if (text.length > maxMemoChars) return hub.encode(text, { add_special_tokens: false }).ids;
    const known = memo.get(text);
    if (known) {
      memo.delete(text);
      memo.set(text, known);
      return known;
    }
    const { ids } = hub.encode(text, { add_special_tokens: false });
    memo.set(text, ids);
    if (memo.size > memoEntries) memo.delete(memo.keys().next().value as string);
    return ids;
  }

  function decode(ids: readonly number[]): string {
    if (ids.length === 0) return '';
    return hub.decode([...ids], { skip_special_tokens: false, clean_up_tokenization_spaces: false });
  }

  function encodePart({ text, plain: isPlain }: TextPart): readonly number[] {
    if (!isPlain) return text.split(between).flatMap(encodeStretch);
    plain ??= build(withoutControlTokens(file));
    return plain.encode(text, { add_special_tokens: false }).ids;
  }

  function partsOf(text: string): TextPart[] {
    if (!quotes.isQuoted(text)) return [{ text, plain: false }];
    if (!isExact) return quotes.partsAtQuotes(text);
    return text
      .split(between)
      .filter((stretch) => stretch !== '')
      .map((stretch) =>
        added.has(stretch)
          ? { text: stretch, plain: false }
          : { text: quotes.unquote(stretch), plain: quotes.isQuoted(stretch) },
      );
  }

  function encode(text: string): readonly number[] {
    return partsOf(text).flatMap(encodePart);
  }

  return {
    vocabSize: hub.get_vocab().size,
    encode,
    // The tokenizer for quoted text is created in the thread, because that would block the event loop here.
    encodeLong: (text) =>
      text.length > maxInlineChars || quotes.isQuoted(text)
        ? encodeInThread(text)
        : Promise.resolve().then(() => encode(text)),
    quote: (text, allowed = []) => quotes.quote(foldsText ? quotes.revealed(text) : text, allowed),
    decode,
    decodeParts(ids) {
      const parts: DecodedPart[] = [];
      let begun = 0;
      const addText = (end: number): void => {
        if (end > begun) parts.push({ text: decode(ids.slice(begun, end)), isControl: false });
      };
      for (const [at, id] of ids.entries()) {
        const token = controlById.get(id);
        if (token === undefined) continue;
        addText(at);
        parts.push({ text: token, isControl: true });
        begun = at + 1;
      }
      addText(ids.length);
      return parts;
    },
    bytes: () => (bytes ??= tokenBytes(file)),
    addedToken: (text) => added.get(text),
    leadingAddedToken(text) {
      const found = byLength.find(([token]) => text.startsWith(token));
      return found ? { text: found[0], id: found[1] } : null;
    },
  };
}

function parsedFile(json: string): TokenizerFile {
  return usable(() => JSON.parse(json) as TokenizerFile);
}

function build(file: TokenizerFile): HubTokenizer {
  return usable(() => new HubTokenizer(file, {}));
}

function usable<T>(make: () => T): T {
  try {
    return make();
  } catch (error) {
    throw new Error(`not a usable tokenizer.json: ${(error as Error).message}`, { cause: error });
  }
}

/** Matches the added tokens of a text, so that `split` returns them and the pieces between them. `tokens`: longest first. */
function anyOf(tokens: readonly string[]): RegExp {
  const literal = (token: string): string => token.replace(/[.*+?^${}()|[\]\\/-]/g, '\\$&');
  return new RegExp(`(${tokens.map(literal).join('|')})`);
}

/**
 * `isExact`: each piece between added tokens has the same ids if it is encoded alone; false if they may depend on the tokens beside it, or on
 * whether the piece comes first. `foldsText`: the tokenizer may turn other characters into those of an added token.
 */
function dividingOf(file: object): { isExact: boolean; foldsText: boolean } {
  const {
    added_tokens = [],
    normalizer,
    pre_tokenizer,
  } = file as {
    added_tokens?: { lstrip?: boolean; rstrip?: boolean; normalized?: boolean }[];
    normalizer: unknown;
    pre_tokenizer: unknown;
  };
  const foldsText = added_tokens.some(({ normalized }) => normalized) && normalizer !== null;
  const reaches = added_tokens.some(({ lstrip, rstrip }) => lstrip || rstrip);
  const knowsFirst = JSON.stringify(pre_tokenizer)?.includes('"prepend_scheme":"first"') ?? false;
  return { isExact: !foldsText && !reaches && !knowsFirst, foldsText };
}

/**
 * Encodes one text after the other in one thread, which starts on first use and again after a failure. It does not keep the process alive.
 */
function encodingThread(json: string): (text: string) => Promise<readonly number[]> {
  let thread: WorkerThread<string, readonly number[]> | null = null;
  let before: Promise<unknown> = Promise.resolve();

  async function encode(text: string): Promise<readonly number[]> {
    thread ??= startThread(threadEntry, { deadlineMs: threadDeadlineMs, workerData: json });
    const used = thread;
    try {
      return await used.call(text);
    } catch (error) {
      thread = null;
      await used.end();
      const { message } = error as Error;
      throw new Error(`a text of ${text.length} characters could not be encoded: ${message}`, {
        cause: error,
      });
    }
  }

  return (text) => {
    const ids = before.then(() => encode(text));
    before = ids.catch(() => undefined);
    return ids;
  };
}
