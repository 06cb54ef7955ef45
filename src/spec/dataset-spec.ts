// The file that `longhaul data prepare` reads: which tasks a dataset has, and how each of them is checked.
import { z } from 'zod';
import { preparedName, selection } from './data-schema.js';
import { count, name, text } from './fields.js';
import { InvalidSpec, type SpecProblem } from './invalid-spec.js';
import { environment } from './schema.js';
import { issueProblems } from './spec-issues.js';
import { withAbsolutePath } from './spec-paths.js';

const gates = z.strictObject({
  parallel: count.default(8).describe('tasks of an environment that are checked at once'),
});

const datasetSpecSchema = z.strictObject({
  name: name.describe('name of the dataset'),
  version: name.describe('its version: other bytes or other settings need another one'),
  tasks: text.describe('file of tasks, also `s3://bucket/key?endpoint=…&region=…`'),
  demonstrations: text.exactOptional().describe('JSONL file of demonstrations'),
  solutions: text
    .exactOptional()
    .describe('JSONL file of solutions; their tasks are checked, and what fails is left out'),
  ...selection,
  frozen: preparedName
    .exactOptional()
    .describe(
      'earlier dataset, `NAME@VERSION`, whose tasks keep their side. `split` then holds out only new tasks, without its limits',
    ),
  environments: z
    .array(environment)
    .default([])
    .describe('servers of the tasks that have solutions, and of the demonstrations'),
  gates: gates.prefault({}).describe('how tasks with solutions are checked'),
});

/** A checked dataset spec, with all defaults. */
export type DatasetSpec = z.output<typeof datasetSpecSchema>;

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
  if (!result.success)
    throw new InvalidSpec(issueProblems(result.error.issues, datasetSpecSchema, input), where);
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
  if (problems.length > 0) throw new InvalidSpec(problems, where);
  return spec;
}
