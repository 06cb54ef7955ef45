// Manifests of files. A manifest is written after its files, and files without a manifest do not count (R31).
import { z } from 'zod';
import { count, counts, digest, file, numerics, text } from './parts.js';

export type DatasetManifest = z.infer<typeof dataset>;
export const dataset = z.strictObject({
  schema: z.literal('longhaul.dataset/2'),
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
      gates: digest.describe('list digest of the gate records, by task and gate'),
      solved: count.describe('tasks with a checked solution, given or taught'),
      excluded: counts.describe('tasks left out, by stage'),
    })
    .exactOptional()
    .describe('of a prepared dataset'),
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
