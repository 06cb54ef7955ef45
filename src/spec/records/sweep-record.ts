// The records of sweeps: which states are evaluated on which suites, and the figures of episodes that a comparison needs.
import { z } from 'zod';
import type { SweepSpec } from '../sweep-spec.js';
import { suite } from './evaluation-records.js';
import { count, digest, text, time } from './parts.js';

export type Place = z.infer<typeof place>;
const place = z.strictObject({ run: text, step: count });

export type SelectedCheckpoint = z.infer<typeof selected>;
const selected = place.extend({
  state: digest,
  // Other steps have the same state if an update applied nothing, or if they belong to a fork.
  also: z.array(place).describe('others with the same state'),
  needed: z.boolean().describe('false if all suites had results'),
});

export type SkippedCheckpoint = z.infer<typeof skipped>;
const skipped = z.strictObject({
  run: text,
  step: count.nullable().describe('null: all checkpoints of the run'),
  // The text continues `{run}@{step}`, for example `its manifest says …`.
  reason: text,
});

export type SweepSuiteEntry = z.infer<typeof suiteEntry>;
const suiteEntry = z.strictObject({
  label: text,
  digest,
  record: suite.meta({ id: 'suite', description: 'the suite record with this digest' }),
});

/** `sweeps/{sweep}/sweep.json`: a choice (R2), so a restarted sweep evaluates the same states, even if the runs train further. */
export type SweepRecord = z.infer<typeof sweep>;
export const sweep = z.strictObject({
  schema: z.literal('longhaul.sweep/2'),
  sweep: text.describe('the workflow’s id without `eval/`, `.` for each `:`'),
  // Planning a sweep checks the spec in full, by its own schema.
  spec: z
    .custom<SweepSpec>(isSweepSpec, 'is not a sweep spec with name, project, checkpoints and suites')
    .describe('[its spec](sweeps.md) with all defaults'),
  suites_of: text.describe('run whose data, seed and settings the suites use'),
  checkpoints: z.array(selected),
  suites: z.array(suiteEntry).min(1),
  baseline: digest.nullable().describe('state that others are compared with; null: the first checkpoint’s'),
  skipped: z.array(skipped),
  observed: z.strictObject({ at: time }),
});

export type TalliedSample = z.infer<typeof talliedSample>;
const talliedSample = z.tuple([z.number().nullable(), count, count, count]);

/** `tallies/{state}/{suite}.json`: a few numbers for each episode of a whole evaluation; a function (R2) of the episodes. */
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
