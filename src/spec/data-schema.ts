// The schema of the data of a run: where tasks come from, and which of them it takes.
import { z } from 'zod';
import { count, countOrZero, name, share, text } from './fields.js';

export const split = z.strictObject({
  held_out_ratio: share
    .default(0.2)
    .describe(
      'held-out share of an environment’s tasks: about 20 tasks at most; none if it would be fewer than 5',
    ),
  max_held_out: countOrZero.default(60).describe('held-out tasks in all; 0: no limit'),
  max_env_share: share.default(0.2).describe('largest share of the training tasks for one environment'),
});

/** Which rows of a task file are taken, and which of them are held out. */
export const selection = {
  modality: z
    .enum(['tool_use', 'computer_use'])
    .exactOptional()
    .describe('takes tasks of this modality; a task without one is `tool_use`'),
  env_keys: z.array(name).min(1).exactOptional().describe('takes tasks of these environments'),
  difficulty: z.array(count).min(1).exactOptional().describe('takes tasks of these difficulties'),
  max_tasks: count.exactOptional().describe('most tasks; the first of those selected are taken'),
  exclude_envs: z.array(name).exactOptional().describe('leaves these environments out'),
  held_out_envs: z.array(name).exactOptional().describe('holds these environments out'),
  split: split
    .exactOptional()
    .describe(
      'holds tasks out by the hash of their key, as SkyRL Fleet Training does, whatever their own `split`',
    ),
};

/** A file, an object in a bucket, or the tasks of a server. */
export const dataPath = text.refine((path) => !/^[a-z+]+:\/\/[^/?]*@/i.test(path), {
  error: 'must not hold a user or a password: credentials come from the environment',
});

/** A dataset that `longhaul data prepare` has made: `NAME@VERSION`. */
export const preparedName = z
  .string()
  .regex(/^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}@[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$/, {
    error:
      'must be NAME@VERSION of a dataset that `longhaul data prepare` has made; `longhaul data show` lists them. A file belongs under `tasks`',
  });

export const data = z.strictObject({
  source: preparedName
    .exactOptional()
    .describe('prepared dataset, `NAME@VERSION`; allows only `eval_tasks` and `final_eval_tasks` beside it'),
  tasks: dataPath
    .exactOptional()
    .describe(
      'file of tasks, also `s3://bucket/key?endpoint=…&region=…`, or `openenv+http://host:port/ENV?split=train&held_out=test`',
    ),
  demonstrations: dataPath.exactOptional().describe('JSONL file of demonstrations'),
  ...selection,
  eval_tasks: count.default(128).describe('held-out tasks in each interval evaluation'),
  final_eval_tasks: count.default(256).describe('held-out tasks in the evaluations before and after GRPO'),
});
