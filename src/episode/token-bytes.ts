// Computes the bytes of each token of a tokenizer, so that the engine can find a stop string that ends inside a token. A token may be only
// a part of a character. The joined bytes of tokens always equal the bytes of the decoded text.

/** The parts of `tokenizer.json` that are read here and for quoted text. */
export interface TokenizerFile {
  model: { type?: string; vocab?: Record<string, number> | [string, number][]; unk_token?: string | null };
  added_tokens?: { id: number; content: string; special?: boolean }[];
  decoder?: Coder | null;
  pre_tokenizer?: Coder | null;
}

interface Coder {
  type: string;
  decoders?: Coder[];
  pretokenizers?: Coder[];
  pattern?: { String?: string };
  content?: string;
}

/** Bytes by id, up to the highest id; an unused id is empty. Throws an Error on tokenizers whose tokens are not bytes (WordPiece). */
export function tokenBytes(file: TokenizerFile): Uint8Array[] {
  const bytesOf = coderOf(file);
  const bytes: Uint8Array[] = Array.from({ length: countOf(file) }, () => new Uint8Array());
  for (const [token, id] of vocabularyOf(file.model)) bytes[id] = bytesOf(token);
  // Added tokens come last, because the vocabulary may contain them too; an added token's text is taken unchanged.
  for (const { id, content } of file.added_tokens ?? []) bytes[id] = utf8(content);
  return bytes;
}

/** The highest id in a `tokenizer.json`, plus one. Throws an Error if it has no vocabulary. */
export function tokenCount(tokenizerJson: string): number {
  return countOf(JSON.parse(tokenizerJson) as TokenizerFile);
}

function countOf({ model, added_tokens = [] }: TokenizerFile): number {
  return (
    Math.max(
      highestId(vocabularyOf(model)),
      highestId(added_tokens.map(({ content, id }) => [content, id])),
    ) + 1
  );
}

function vocabularyOf({ vocab }: TokenizerFile['model']): [string, number][] {
  if (Array.isArray(vocab)) return vocab.map(([token], id) => [token, id]);
  if (typeof vocab === 'object' && vocab !== null) return Object.entries(vocab);
  throw new Error('its model has no vocabulary');
}

function highestId(entries: readonly (readonly [string, number])[]): number {
  return entries.reduce((most, [, id]) => Math.max(most, id), -1);
}

function coderOf({ model, decoder, pre_tokenizer }: TokenizerFile): (token: string) => Uint8Array {
  const decoders = flat(decoder);
  const isByteLevel = [...decoders, ...flat(pre_tokenizer)].some(({ type }) => type === 'ByteLevel');
  if (isByteLevel) return byteLevel;
  if (model.type === 'WordPiece' || decoders.some(({ type }) => type === 'WordPiece'))
    throw new Error(
      'the bytes of a WordPiece token depend on its neighbours: such a tokenizer cannot have stop strings',
    );
  const replaced = decoders.flatMap(({ type, pattern, content }) =>
    type === 'Replace' && pattern?.String !== undefined ? [[pattern.String, content ?? ''] as const] : [],
  );
  if (decoders.some(({ type }) => type === 'Metaspace')) replaced.push(['▁', ' ']);
  return (token) => {
    const byte = /^<0x([0-9A-Fa-f]{2})>$/.exec(token)?.[1];
    if (byte !== undefined) return Uint8Array.of(Number.parseInt(byte, 16));
    return utf8(replaced.reduce((text, [from, to]) => text.replaceAll(from, to), token));
  };
}

function flat(coder: Coder | null | undefined): Coder[] {
  if (!coder) return [];
  return [coder, ...[...(coder.decoders ?? []), ...(coder.pretokenizers ?? [])].flatMap(flat)];
}

/** A token with a character that stands for no byte is taken as plain text, as in Hugging Face's decoder. */
function byteLevel(token: string): Uint8Array {
  const bytes = Array.from(token, (character) => byteOfCharacter.get(character));
  return bytes.includes(undefined) ? utf8(token) : Uint8Array.from(bytes as number[]);
}

/** GPT-2's byte alphabet: printable Latin-1 characters stand for themselves; the characters from U+0100 on stand for the other 68 bytes. */
const byteOfCharacter: ReadonlyMap<string, number> = (() => {
  const alphabet = new Map<string, number>();
  let other = 0x100;
  for (let byte = 0; byte < 256; byte++) {
    const isPrintable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    alphabet.set(String.fromCodePoint(isPrintable ? byte : other++), byte);
  }
  return alphabet;
})();

function utf8(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}
