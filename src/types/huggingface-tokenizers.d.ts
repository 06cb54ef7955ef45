// Replaces the package's own declarations: they import without file suffixes, which nodenext does not resolve, so every type would be
// `any`.
declare module '@huggingface/tokenizers' {
  export interface Encoding {
    ids: number[];
    tokens: string[];
    attention_mask: number[];
  }
  export interface AddedToken {
    id: number;
    content: string;
    special: boolean;
  }
  export class Tokenizer {
    /** Parsed `tokenizer.json` and `tokenizer_config.json`. */
    constructor(tokenizer: object, config: object);
    encode(text: string, options?: { text_pair?: string | null; add_special_tokens?: boolean }): Encoding;
    decode(
      ids: number[],
      options?: { skip_special_tokens?: boolean; clean_up_tokenization_spaces?: boolean },
    ): string;
    token_to_id(token: string): number | undefined;
    id_to_token(id: number): string | undefined;
    get_added_tokens_decoder(): Map<number, AddedToken>;
    get_vocab(withAddedTokens?: boolean): Map<string, number>;
  }
}
