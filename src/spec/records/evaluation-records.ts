// The records of evaluations: what is measured (the suite) and the results. Runs and sweeps share them.
import { z } from 'zod';
import type { PassRate } from '../pass-rate.js';
import {
  amount,
  count,
  digest,
  digests,
  figures,
  numerics,
  positive,
  sampling,
  share,
  since,
  text,
  time,
} from './parts.js';

/** By `env_key`: digest of the facts that distinguish the environment from others with the same tasks. */
export type EnvironmentIdentities = NonNullable<SuiteRecord['environments']>;

/** What an evaluation measures. Its digest is the `{suite}` in `evals/{state}/{suite}/`. */
export type SuiteRecord = z.infer<typeof suite>;
export const suite = z
  .strictObject({
    schema: z.enum(['longhaul.suite/1', 'longhaul.suite/2']),
    name: text,
    tasks: z
      .array(z.strictObject({ task_key: text, env_key: text, template: text, seed: z.number().int() }))
      .min(1),
    samples_per_task: positive,
    sampling,
    seed: z.number().int(),
    digests,
    numerics,
    environments: z
      .record(text, digest)
      .exactOptional()
      .describe('identities by `env_key`; like the next two, from version 2 on'),
    round: z.number().int().min(2).exactOptional().describe('absent: round 1'),
    again: text.exactOptional().describe('the sweep that plays all episodes again'),
  })
  .superRefine(since(2, { always: ['environments'], may: ['round', 'again'] }));

/** `runs/{run}/evaluations/{step}.{suite name}.json`: names the evaluation that the run uses; this run or another one played it. */
export type EvaluatedRecord = z.infer<typeof evaluated>;
export const evaluated = z.strictObject({
  schema: z.literal('longhaul.evaluated/1'),
  run: text,
  step: count,
  suite_name: text,
  state: digest,
  suite: digest.describe('digest of the suite whose result the run uses'),
  observed: z.strictObject({ at: time }),
});

const passRate = share.nullable();
const ungradedRate = 'pass_at_1 must be null if graded is 0, and a share from 0 to 1 otherwise';
const environmentFigures = {
  graded: count,
  unknown: count,
  mean_turns: amount,
  mean_tool_calls: amount,
  tool_errors: count,
};
const everyResult = {
  state: digest,
  suite: digest,
  suite_name: text,
  graded: count,
  unknown: count,
  templates: z.record(z.string(), z.strictObject({ passed: count, graded: count })),
  observed: z.strictObject({
    run: text.describe('run that asked for the evaluation first'),
    step: count,
    seconds: amount,
    committed_at: time,
    metrics: figures,
  }),
};

const severalSamples = {
  pass_at_k: z
    .record(z.string().regex(/^[1-9][0-9]*$/), share)
    .exactOptional()
    .describe(
      'by k from 2 on: mean, over the tasks with at least k graded samples, of the unbiased estimate that one of k passes; ' +
        'a k is absent if less than 0.9 of the tasks with a grade have so many; the same, with `pass_at_n`, in `environments`',
    ),
  pass_at_n: passRate
    .exactOptional()
    .describe('share of the tasks with a graded sample that have a reward above 0; null if there are none'),
};
const memberNames = ['pass_at_k', 'pass_at_n'];

const environmentResult = z
  .strictObject({ ...environmentFigures, pass_at_1: passRate, ...severalSamples })
  .refine(hasRateIfGraded, ungradedRate);
/** A suite with one sample a task still has version 2. */
const evaluation2 = z
  .strictObject({
    schema: z.enum(['longhaul.evaluation/2', 'longhaul.evaluation/3']),
    ...everyResult,
    pass_at_1: passRate.describe(
      'share of graded episodes that passed (value ≥ 1 − 1e-9); null if none was graded; the same in `environments`',
    ),
    samples_per_task: z.number().int().min(2).exactOptional(),
    ...severalSamples,
    environments: z.record(z.string(), environmentResult),
  })
  .refine(hasRateIfGraded, ungradedRate)
  .superRefine((record, context) => {
    since(3, { always: ['samples_per_task', ...memberNames] })(record, context);
    const own = since(3, { always: memberNames });
    for (const figures of Object.values(record.environments))
      own({ ...figures, schema: record.schema }, context);
  });

/** Version 1 wrote 0 if no outcome was graded. */
const evaluation1 = z
  .strictObject({
    schema: z.literal('longhaul.evaluation/1'),
    ...everyResult,
    pass_at_1: share,
    environments: z.record(
      z.string(),
      z.strictObject({ ...environmentFigures, pass_at_1: share }).transform(withoutUngradedRate),
    ),
  })
  .transform(withoutUngradedRate);

/** A result. If nothing was graded, version 1 holds 0, which is read as null. */
export type EvaluationResult = z.infer<typeof evaluation>;
export const evaluation = z.discriminatedUnion('schema', [evaluation2, evaluation1]);

function hasRateIfGraded({ pass_at_1, graded }: { pass_at_1: PassRate; graded: number }): boolean {
  return (pass_at_1 === null) === (graded === 0);
}

/** Members that version 1 lacks. */
type OfSeveralSamples = Pick<z.infer<typeof evaluation2>, 'samples_per_task' | 'pass_at_k' | 'pass_at_n'>;

function withoutUngradedRate<Rate extends { pass_at_1: number; graded: number }>(
  figures: Rate,
): Omit<Rate, 'pass_at_1'> & { pass_at_1: PassRate } & OfSeveralSamples {
  const { pass_at_1, graded } = figures;
  return { ...figures, pass_at_1: graded === 0 && pass_at_1 === 0 ? null : pass_at_1 };
}
