// The records from which a prepared dataset follows.
import { z } from 'zod';
import type { DatasetSpec } from '../dataset-spec.js';
import { amount, count, digest, text, time } from './parts.js';

/** `datasets/…/gathered.json`: what a dataset is prepared from. */
export type GatheredRecord = z.infer<typeof gathered>;
export const gathered = z.strictObject({
  schema: z.literal('longhaul.gathered/1'),
  name: text,
  version: text,
  spec: z
    .custom<DatasetSpec>((value) => typeof value === 'object' && value !== null, 'is not a dataset spec')
    .describe('with all defaults'),
  sources: z
    .array(z.strictObject({ path: text, size: count, sha256: digest }))
    .describe('the files, as they were read'),
  tasks: count.describe('tasks that the spec selects'),
  solved: count.describe('those with a solution'),
  files: z
    .strictObject({
      tasks: digest,
      excluded: digest,
      solutions: digest,
      demonstrations: digest,
      tools: digest,
    })
    .describe(
      'assets: selected tasks and solutions, tasks left out so far, demonstrations, tools by `env_key`',
    ),
  observed: z.strictObject({ at: time }),
});

/** `datasets/…/taught/…`: one try of a task by the teacher. */
export type TaughtRecord = z.infer<typeof taught>;
export const taught = z.strictObject({
  schema: z.literal('longhaul.taught/1'),
  gathered: digest.describe('digest of `gathered.json`'),
  task_key: text,
  sample: count,
  value: z.number().nullable().describe('the grade; null: there is none'),
  reason: text.exactOptional().describe('why there is none'),
  calls: z
    .array(z.strictObject({ name: text, arguments: z.record(z.string(), z.unknown()) }))
    .describe('calls not answered with an error'),
  final_answer: text,
  tokens: z.strictObject({ prompt: count, completion: count }).describe('as the endpoint counts them'),
  observed: z.strictObject({ at: time, seconds: amount }),
});

export const gateNames = ['solution', 'repeat', 'nothing'] as const;
/** What a task with a solution must pass before it is trained on. */
export type GateName = (typeof gateNames)[number];

/** `datasets/…/gates/…`: one check of one task on its environment. */
export type GateRecord = z.infer<typeof gate>;
export const gate = z.strictObject({
  schema: z.literal('longhaul.gate/1'),
  gathered: digest.describe('digest of `gathered.json`'),
  task_key: text,
  gate: z
    .enum(gateNames)
    .describe(
      '`solution` is graded 1; `repeat`: its grade again; `nothing`: without any call the grade is at most 0',
    ),
  passed: z.boolean(),
  value: z.number().nullable().describe('the grade; null: the environment gave none'),
  reason: text.exactOptional().describe('why it did not pass'),
  errors: count.describe('calls answered with an error'),
  messages: z
    .array(z.strictObject({ role: z.enum(['user', 'assistant', 'tool']), content: text }))
    .exactOptional()
    .describe('a passed solution’s conversation, a demonstration of kind `solution`'),
  observed: z.strictObject({
    at: time,
    seconds: amount,
    explanation: text.exactOptional().describe('from the grader'),
  }),
});
