// The records of sweeps: what is evaluated on what, and the figures of an evaluation's episodes that a comparison needs.
import { z } from 'zod';
import type { SweepSpec } from '../sweep-spec.js';
import { suite } from './evaluation-records.js';
import { count, digest, text, time } from './parts.js';

export type Place = z.infer<typeof place>;
const place = z.strictObject({ run: text, step: count });

export type SelectedCheckpoint = z.infer<typeof selected>;
const selected = place.extend({
  state: digest,
  // At a step that was not applied, or under a fork's name.
  also: z.array(place).describe('the same state elsewhere'),
  needed: z.boolean().describe('false if all suites had results'),
});

export type SkippedCheckpoint = z.infer<typeof skipped>;
const skipped = z.strictObject({
  run: text,
  step: count.nullable().describe('null: all of the run'),
  // Goes on after `{run}@{step}`: `its manifest says …`.
  reason: text,
});

export type SweepSuiteEntry = z.infer<typeof suiteEntry>;
const suiteEntry = z.strictObject({
  label: text,
  digest,
  record: suite.meta({ id: 'suite', description: 'of that digest' }),
});

/** `sweeps/{sweep}/sweep.json`: a choice, so that a restart of the sweep finds it, regardless of later training. */
export type SweepRecord = z.infer<typeof sweep>;
export const sweep = z.strictObject({
  schema: z.enum(['longhaul.sweep/1', 'longhaul.sweep/2']),
  sweep: text.describe('the workflow’s id without `eval/`, `:` as `.`'),
  // The spec's own schema checks it in full when a sweep is planned.
  spec: z
    .custom<SweepSpec>(isSweepSpec, 'is no sweep with name, project, checkpoints and suites')
    .describe('with all defaults ([sweeps.md](sweeps.md))'),
  suites_of: text.describe('run that gives data, seed and settings'),
  checkpoints: z.array(selected),
  suites: z.array(suiteEntry).min(1),
  baseline: digest.nullable().describe('state to compare with; null: the first checkpoint’s'),
  skipped: z.array(skipped),
  observed: z.strictObject({ at: time }),
});

export type TalliedSample = z.infer<typeof talliedSample>;
const talliedSample = z.tuple([z.number().nullable(), count, count, count]);

/** `tallies/{state}/{suite}.json`: a whole evaluation's episodes as a few numbers each; a function of the episodes. */
export type TallyRecord = z.infer<typeof tally>;
export const tally = z.strictObject({
  schema: z.literal('longhaul.tally/1'),
  state: digest,
  suite: digest,
  samples: z
    .array(z.array(talliedSample))
    .describe('by task, then sample: reward (null: unknown), turns, tool calls, tool errors'),
});

function isSweepSpec(value: unknown): boolean {
  const spec = value as Record<string, unknown> | null;
  return (
    typeof spec === 'object' &&
    spec !== null &&
    typeof spec.name === 'string' &&
    typeof spec.project === 'string' &&
    typeof spec.parallel === 'number' &&
    Array.isArray(spec.checkpoints) &&
    Array.isArray(spec.suites)
  );
}
