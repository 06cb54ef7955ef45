// The file that `longhaul data prepare` reads: which tasks a dataset has, and how each of them is checked.
import { z } from 'zod';
import { dataPath, preparedName, selection } from './data-schema.js';
import { secretInUrl } from '../base/secrets.js';
import { count, name, positive, text, variableName } from './fields.js';
import { InvalidSpec, refuseOtherKind, type SpecProblem } from './invalid-spec.js';
import { entryProblems } from './environments/environment-problems.js';
import { environment } from './environments/environment-schema.js';
import { issueProblems } from './spec-issues.js';
import { withAbsolutePath } from './spec-paths.js';

const teacher = z.strictObject({
  url: z
    .url({ protocol: /^https?$/ })
    .refine((url) => secretInUrl(url) === null, {
      error:
        'must be http://host:port/v1 without user, password or query; name the key’s variable in api_key_env',
    })
    .describe('OpenAI-compatible endpoint, up to `/v1`'),
  model: text.describe('its name of the model'),
  api_key_env: variableName('key').exactOptional().describe('environment variable with the endpoint’s key'),
  samples: count.default(4).describe('most tries of a task; the first one graded 1 ends them'),
  temperature: z.number().min(0).max(2).default(0.7).describe('sampling temperature'),
  max_turns: count.default(20).describe('turns a try'),
  max_generate_length: count.default(1_024).describe('most tokens sampled in one turn'),
  max_tokens: count
    .exactOptional()
    .describe('budget in tokens, read and written; looked at before each turn'),
  max_usd: positive.exactOptional().describe('budget in USD; needs `usd_per_million`'),
  usd_per_million: z
    .strictObject({
      prompt: z.number().min(0).describe('tokens read'),
      completion: z.number().min(0).describe('tokens written'),
    })
    .exactOptional()
    .describe('price of a million tokens'),
});

export const datasetSpecSchema = z.strictObject({
  name: name.describe('name of the dataset'),
  version: name.describe('other bytes or settings need another one'),
  tasks: dataPath.describe(
    'file of tasks, also `s3://bucket/key?endpoint=…&region=…`, or `openenv+http://host:port/ENV?split=train&held_out=test`',
  ),
  demonstrations: dataPath.exactOptional().describe('JSONL file of demonstrations'),
  solutions: dataPath
    .exactOptional()
    .describe('JSONL file of solutions; tasks that fail their check are left out'),
  ...selection,
  frozen: preparedName
    .exactOptional()
    .describe(
      'earlier dataset, `NAME@VERSION`, whose tasks keep their side; `split` then holds out only new tasks, without its limits',
    ),
  environments: z
    .array(environment)
    .default([])
    .describe('servers of the tasks that have solutions, and of the demonstrations'),
  teacher: teacher
    .exactOptional()
    .describe('a model that tries tasks without a solution; its successes are solutions'),
  unsolved: z
    .enum(['keep', 'leave_out'])
    .default('keep')
    .describe('whether tasks without a solution, given or taught, stay'),
  repeats: count
    .max(100)
    .exactOptional()
    .describe('how often a solution is played again and must get the same grade; absent: 1'),
  parallel: count.default(8).describe('tasks played at once for an entry of `environments`'),
});

/** A checked dataset spec, with all defaults. */
export type DatasetSpec = z.output<typeof datasetSpecSchema>;
export type TeacherSpec = NonNullable<DatasetSpec['teacher']>;

/** `NAME@VERSION`. */
export const datasetId = ({ name, version }: { name: string; version: string }): string =>
  `${name}@${version}`;

/**
 * Checks a dataset spec and fills in all defaults. Paths become absolute, relative to `context.file`'s folder. Throws `InvalidSpec` with
 * every problem at once.
 */
export function parseDatasetSpec(input: unknown, { file }: { file?: string } = {}): DatasetSpec {
  const where = file ?? 'the dataset spec';
  const result = datasetSpecSchema.safeParse(input);
  if (!result.success) {
    refuseOtherKind(input, 'dataset', where);
    throw new InvalidSpec(issueProblems(result.error.issues, datasetSpecSchema, input), where);
  }
  const spec = result.data;
  const problems: SpecProblem[] = [];
  for (const key of ['tasks', 'demonstrations', 'solutions'] as const) {
    const path = spec[key];
    if (path !== undefined) spec[key] = withAbsolutePath(key, path, file, problems);
  }
  if (spec.frozen !== undefined) {
    if (spec.frozen === datasetId(spec))
      problems.push({ path: 'frozen', problem: 'names the dataset itself', fix: 'name an earlier version' });
    if (spec.held_out_envs !== undefined)
      problems.push({
        path: 'held_out_envs',
        problem: 'could move tasks that frozen keeps on their side',
        fix: 'keep one of them',
      });
  }
  if (spec.teacher) problems.push(...budgetProblems(spec.teacher));
  problems.push(...serverProblems(spec));
  if (problems.length > 0) throw new InvalidSpec(problems, where);
  return spec;
}

function serverProblems({ environments }: DatasetSpec): SpecProblem[] {
  const attached = environments.flatMap(({ sessions }, index) =>
    sessions === 'attached'
      ? [
          {
            path: `environments[${index}].sessions`,
            problem: 'solutions are played on sockets alone',
            fix: 'remove it',
          },
        ]
      : [],
  );
  return [...entryProblems(environments), ...attached];
}

function budgetProblems({ max_tokens, max_usd, usd_per_million }: TeacherSpec): SpecProblem[] {
  if (max_usd !== undefined && usd_per_million === undefined)
    return [
      {
        path: 'teacher.usd_per_million',
        problem: 'is missing, so nobody can count max_usd',
        fix: 'give the prices of a million tokens',
      },
    ];
  if (max_tokens !== undefined || max_usd !== undefined) return [];
  return [
    {
      path: 'teacher',
      problem: 'has no budget',
      fix: 'give max_tokens, or max_usd with usd_per_million',
    },
  ];
}
