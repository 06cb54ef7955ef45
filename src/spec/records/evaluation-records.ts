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
  text,
  time,
} from './parts.js';

/** By `env_key`: digest of the facts that distinguish the environment from others with the same tasks. */
export type EnvironmentIdentities = SuiteRecord['environments'];

/** What an evaluation measures. Its digest is the `{suite}` in `evals/{state}/{suite}/`. */
export type SuiteRecord = z.infer<typeof suite>;
export const suite = z.strictObject({
  schema: z.literal('longhaul.suite/2'),
  name: text,
  tasks: z
    .array(z.strictObject({ task_key: text, env_key: text, template: text, seed: z.number().int() }))
    .min(1),
  samples_per_task: positive,
  sampling,
  seed: z.number().int(),
  digests,
  numerics,
  environments: z.record(text, digest).describe('identities by `env_key`'),
  round: z.number().int().min(2).exactOptional().describe('absent: round 1'),
  again: text.exactOptional().describe('the sweep that plays all episodes again'),
});

/** `runs/{run}/evaluations/{step}.{suite name}.json`: names the evaluation that the run uses; this run or another one played it. */
export type EvaluatedRecord = z.infer<typeof evaluated>;
export const evaluated = z.strictObject({
  schema: z.literal('longhaul.evaluated/1'),
  run: text,
  step: count,
  suite_name: text,
  state: digest,
  suite: digest.describe('the suite whose result the run uses'),
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
    run: text.describe('run that asked first'),
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
      'by k from 2 on: mean, over tasks with at least k graded samples, of the unbiased estimate that one of k passes; ' +
        'a k is absent if less than 0.9 of the graded tasks have so many; the same, with `pass_at_n`, in `environments`',
    ),
  pass_at_n: passRate
    .exactOptional()
    .describe('share of tasks with a graded sample that have a reward above 0; null if none is graded'),
};

const environmentResult = z
  .strictObject({ ...environmentFigures, pass_at_1: passRate, ...severalSamples })
  .refine(hasRateIfGraded, ungradedRate);
/** `samples_per_task` and the figures of several samples are there if the suite has several samples a task. */
export type EvaluationResult = z.infer<typeof evaluation>;
export const evaluation = z
  .strictObject({
    schema: z.literal('longhaul.evaluation/3'),
    ...everyResult,
    pass_at_1: passRate.describe(
      'share of graded episodes that passed (value ≥ 1 − 1e-9); null if none is graded; the same in `environments`',
    ),
    samples_per_task: z.number().int().min(2).exactOptional(),
    ...severalSamples,
    environments: z.record(z.string(), environmentResult),
  })
  .refine(hasRateIfGraded, ungradedRate)
  .superRefine((record, context) => {
    const several = record.samples_per_task !== undefined;
    for (const figures of [record, ...Object.values(record.environments)])
      if ((figures.pass_at_k !== undefined) !== several || (figures.pass_at_n !== undefined) !== several)
        context.addIssue({ code: 'custom', message: 'pass_at_k and pass_at_n go with samples_per_task' });
  });

function hasRateIfGraded({ pass_at_1, graded }: { pass_at_1: PassRate; graded: number }): boolean {
  return (pass_at_1 === null) === (graded === 0);
}
