// Parts that the schemas of several records share. docs/records.md lists each part by its `id` and `description`.
import { z } from 'zod';

export const text = z.string();
/** Lower-case hex sha256, 64 characters. */
export type Digest = z.infer<typeof digest>;
export const digest = z
  .string()
  .regex(/^[0-9a-f]{64}$/, 'is not a sha256 (64 lower-case hex digits)')
  .meta({ id: 'digest', description: '64 lower-case hex digits' });
export const count = z.number().int().nonnegative().meta({ id: 'count' });
export const positive = z.number().int().positive().meta({ id: 'positive' });
export const amount = z.number().nonnegative().meta({ id: 'amount' });
export const share = z.number().min(0).max(1).meta({ id: 'share' });
export const time = z.iso
  .datetime()
  .meta({ id: 'time', description: 'ISO 8601 in UTC, as `2026-01-02T03:04:05.678Z`' });
export const figures = z.record(z.string(), z.number()).meta({ id: 'figures' });
export const counts = z.record(z.string(), count).meta({ id: 'counts' });

/** Numerics of an engine that loads models itself. */
export const engineNumerics = ['cpu', 'bf16-sm90'] as const;
export type EngineNumerics = (typeof engineNumerics)[number];

export const numerics = z
  .strictObject({
    backend: z.enum([...engineNumerics, 'tinker']),
    version: positive.describe('raised when a golden digest changes'),
    service: text.exactOptional().describe('`tinker`: the operator’s name of the server'),
    model: text.exactOptional().describe('`tinker`: name of the model there'),
  })
  .meta({ id: 'numerics', description: 'equal numerics give equal bits (R18)' });
export const engine = z
  .strictObject({
    build: text.describe('version and compiler'),
    incarnation: text.describe('random id of the process'),
  })
  .meta({ id: 'engine' });
export const digests = z
  .strictObject({
    tokenizer: digest.describe('sha256 of the tokenizer file'),
    chat_template: digest.describe('sha256 of the template file'),
    tool_parser: text.describe('name and version'),
    dataset: digest.describe('digest of the manifest'),
  })
  .meta({ id: 'digests' });

export type FileEntry = z.infer<typeof file>;
export const file = z
  .strictObject({
    path: text.min(1).describe('path relative to the manifest’s folder'),
    size: count,
    sha256: digest,
  })
  .meta({ id: 'file' });

export type SamplingPlan = z.infer<typeof sampling>;
export const sampling = z
  .strictObject({
    temperature: amount,
    max_turns: positive,
    max_input_length: positive,
    max_generate_length: positive,
    max_sequence_length: positive,
    tools_format: z.enum(['json', 'signatures', 'openai']),
    system_prompt: z.enum(['skyrl', 'short']),
    max_output_chars: positive,
    max_episode_failures: count,
    stop: z.array(text.min(1)).min(1).exactOptional(),
    top_p: share.exactOptional(),
    top_k: positive.exactOptional(),
  })
  .meta({ id: 'sampling', description: 'settings of the spec’s [`generator`](run-spec.md#generator)' });

// Lists of token ids and log-probs are long: one loop over a list is ten times faster than a schema for each item.
export const tokenIds = z
  .custom<number[]>(
    (value) =>
      Array.isArray(value) && value.every((item) => Number.isSafeInteger(item) && (item as number) >= 0),
    'is not a list of token ids',
  )
  .meta({ id: 'token ids', type: 'array', items: { type: 'integer', minimum: 0 } });
export const logprobs = z
  .custom<number[]>(
    (value) => Array.isArray(value) && value.every((item) => Number.isFinite(item) && (item as number) <= 0),
    'is not a list of log-probs (finite numbers ≤ 0)',
  )
  .meta({ id: 'log-probs', description: 'float32', type: 'array', items: { type: 'number', maximum: 0 } });
export const outcomes = z.array(z.array(z.number().nullable())).meta({
  id: 'outcomes',
  description: 'by slot and sample: the graded value, null if unknown; empty for `sft`',
});
