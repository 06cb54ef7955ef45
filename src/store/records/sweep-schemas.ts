// The schemas of sweeps' records.
import { z } from 'zod';
import type { SuiteRecord } from '../../spec/records/evaluation-records.js';
import type { SweepSpec } from '../../spec/sweep-spec.js';
import { count, digest, text, time } from './schema-parts.js';

const place = z.strictObject({ run: text, step: count });

/** `suite`: the schema of the suites that a sweep holds. */
export function sweepSchema(suite: z.ZodType<SuiteRecord>) {
  return z.strictObject({
    schema: z.enum(['longhaul.sweep/1', 'longhaul.sweep/2']),
    sweep: text,
    // Checked in full by the spec's own schema where a sweep is planned.
    spec: z.custom<SweepSpec>(isSweepSpec, 'is no sweep with name, project, checkpoints and suites'),
    suites_of: text,
    checkpoints: z.array(place.extend({ state: digest, also: z.array(place), needed: z.boolean() })),
    suites: z.array(z.strictObject({ label: text, digest, record: suite })).min(1),
    baseline: digest.nullable(),
    skipped: z.array(z.strictObject({ run: text, step: count.nullable(), reason: text })),
    observed: z.strictObject({ at: time }),
  });
}

export const tally = z.strictObject({
  schema: z.literal('longhaul.tally/1'),
  state: digest,
  suite: digest,
  samples: z.array(z.array(z.tuple([z.number().nullable(), count, count, count]))),
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
