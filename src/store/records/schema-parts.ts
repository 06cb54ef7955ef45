// What the schemas of records have in common.
import { z } from 'zod';

export const text = z.string();
export const digest = z.string().regex(/^[0-9a-f]{64}$/, 'is no sha256: 64 lower-case hex digits');
export const count = z.number().int().nonnegative();
export const positive = z.number().int().positive();
export const share = z.number().min(0).max(1);
export const time = z.iso.datetime();
export const figures = z.record(z.string(), z.number());
export const counts = z.record(z.string(), count);

/** An enumeration of a type's names. The compiler asks for each of them, so no list here omits one. */
export function oneOf<T extends string>(names: Record<T, true>) {
  return z.enum(Object.keys(names) as T[]);
}

export const numerics = z.strictObject({ backend: z.literal('cpu'), version: positive });
export const digests = z.strictObject({
  tokenizer: digest,
  chat_template: digest,
  tool_parser: text,
  dataset: digest,
});
export const sampling = z.strictObject({
  temperature: z.number().nonnegative(),
  max_turns: positive,
  max_input_length: positive,
  max_generate_length: positive,
  max_sequence_length: positive,
  tools_format: z.enum(['json', 'signatures']),
  system_prompt: z.enum(['skyrl', 'short']),
  max_output_chars: positive,
  max_episode_failures: count,
  stop: z.array(text.min(1)).min(1).exactOptional(),
  top_p: share.exactOptional(),
  top_k: positive.exactOptional(),
});
