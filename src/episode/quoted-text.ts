// Quotes the added tokens in text from outside, so that nobody else speaks as the system: `<|im_start|>` in a tool's result must not become the
// token that opens a message. A quoted token is written with two private characters around its number; templates leave them as they are.
import type { TokenizerFile } from './token-bytes.js';

const [open, close] = ['\u{F0F1E}', '\u{F0F1F}'];
const quoted = new RegExp(`${open}(\\d+)${close}`, 'gu');

/** A part of a text that is encoded separately. `plain`: texts of added tokens in it are encoded as characters. */
export interface TextPart {
  text: string;
  plain: boolean;
}

export class TextQuotes {
  /** The texts that are quoted, by number: the two private characters, then the added tokens. */
  private readonly texts: readonly string[];
  private readonly found: RegExp;

  /** `tokens`: texts of the added tokens, longest first. */
  constructor(tokens: readonly string[]) {
    this.texts = [open, close, ...tokens];
    const literal = (text: string): string => text.replace(/[.*+?^${}()|[\]\\/]/g, '\\$&');
    this.found = new RegExp(this.texts.map(literal).join('|'), 'gu');
  }

  quote(text: string, allowed: readonly string[]): string {
    return text.replace(this.found, (token) =>
      allowed.includes(token) ? token : `${open}${this.texts.indexOf(token)}${close}`,
    );
  }

  /** The text in Unicode's form NFKC if that form contains a token; else the same text. */
  revealed(text: string): string {
    const folded = text.normalize('NFKC');
    return folded.search(this.found) >= 0 ? folded : text;
  }

  isQuoted(text: string): boolean {
    return text.includes(open);
  }

  /** The text as it was before it was quoted. */
  unquote(text: string): string {
    return text.replace(quoted, (_, number: string) => this.texts[Number(number)] ?? '');
  }

  /** The parts of the text, divided at quoted tokens only. */
  partsAtQuotes(text: string): TextPart[] {
    return text
      .split(quoted)
      .map((part, index) =>
        index % 2 === 0
          ? { text: part, plain: false }
          : { text: this.texts[Number(part)] ?? '', plain: true },
      )
      .filter((part) => part.text !== '');
  }
}

/** Texts of the added tokens that control a model, longest first; without tokens for runs of spaces or for plain words. */
export function controlTokens({ added_tokens = [] }: TokenizerFile): string[] {
  return added_tokens
    .filter(isControl)
    .map(({ content }) => content)
    .sort((a, b) => b.length - a.length);
}

/** The same tokenizer without its control tokens: it encodes their texts as characters, even if its vocabulary contains them. */
export function withoutControlTokens(file: TokenizerFile): TokenizerFile {
  const control = new Set(controlTokens(file));
  const renamed = (piece: string): string => (control.has(piece) ? `${open}${piece}${close}` : piece);
  const { vocab, unk_token } = file.model;
  const pieces = Array.isArray(vocab)
    ? vocab.map(([piece, score]): [string, number] => [renamed(piece), score])
    : Object.fromEntries(Object.entries(vocab ?? {}).map(([piece, id]) => [renamed(piece), id]));
  return {
    ...file,
    added_tokens: file.added_tokens?.filter((token) => !isControl(token)) ?? [],
    model: { ...file.model, vocab: pieces, ...(unk_token ? { unk_token: renamed(unk_token) } : {}) },
  };
}

function isControl({ content, special }: { content: string; special?: boolean }): boolean {
  return (special === true && content.trim() !== '') || /^[<[].*[\]>]$/s.test(content);
}
