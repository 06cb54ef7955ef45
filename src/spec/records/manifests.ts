// Manifests of files. A manifest is written after its files, and files without a manifest do not count (R31).
import { z } from 'zod';
import type { DatasetSpec } from '../dataset-spec.js';
import { amount, count, counts, digest, file, numerics, text, time } from './parts.js';

export type DatasetManifest = z.infer<typeof dataset>;
export const dataset = z.strictObject({
  schema: z.enum(['longhaul.dataset/1', 'longhaul.dataset/2']),
  name: text,
  version: text,
  files: z.array(file),
  tasks: count,
  train_tasks: count,
  held_out_tasks: count,
  demonstrations: counts,
  prepared: z
    .strictObject({
      gathered: digest.describe('digest of `gathered.json`'),
      gates: digest.describe('list digest of the gate records, in the order of tasks and gates'),
      excluded: counts.describe('tasks left out, by stage'),
    })
    .exactOptional()
    .describe('from version 2 on, of a dataset that was prepared'),
});

/** `datasets/…/gathered.json`: what a dataset is prepared from. */
export type GatheredRecord = z.infer<typeof gathered>;
export const gathered = z.strictObject({
  schema: z.literal('longhaul.gathered/1'),
  name: text,
  version: text,
  spec: z
    .custom<DatasetSpec>((value) => typeof value === 'object' && value !== null, 'is not a dataset spec')
    .describe('the dataset’s spec, with all defaults'),
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
      'assets: tasks and solutions that are selected, tasks left out so far, demonstrations, tools by `env_key`',
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
    .describe('calls that were not answered with an error'),
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
    .describe('`solution` is graded 1; `repeat`: its grade again; `nothing`: no call is graded 0 at most'),
  passed: z.boolean(),
  value: z.number().nullable().describe('the grade; null: the environment gave none'),
  reason: text.exactOptional().describe('why it did not pass'),
  errors: count.describe('calls of the solution that were answered with an error'),
  messages: z
    .array(z.strictObject({ role: z.enum(['user', 'assistant', 'tool']), content: text }))
    .exactOptional()
    .describe('of a solution that passed: its conversation, a demonstration of kind `solution`'),
  observed: z.strictObject({
    at: time,
    seconds: amount,
    explanation: text.exactOptional().describe('explanation from the grader'),
  }),
});

/** `checkpoints/…/manifest.json`: the manifest of a checkpoint. */
export type CheckpointManifest = z.infer<typeof checkpoint>;
export const checkpoint = z.strictObject({
  schema: z.literal('longhaul.checkpoint/1'),
  run: text,
  step: count,
  state: digest,
  numerics,
  files: z.array(file).min(1),
});

/** `weights/{weights}/manifest.json`: the weights of a model that was given as a folder. */
export type WeightsManifest = z.infer<typeof weights>;
export const weights = z.strictObject({
  schema: z.literal('longhaul.weights/1'),
  weights: digest,
  files: z.array(file).min(1),
});
