// The terminal record of one episode: a (slot, sample) of a step, or a (task, sample) of an evaluation (R8).
import { z } from 'zod';
import { count, counts, amount, digest, logprobs, positive, text, time, tokenIds } from './parts.js';

/** Why an environment could not do what an episode asked for. */
export type EnvironmentReason = (typeof environmentReasons)[number];
export const environmentReasons = [
  ...(['connect', 'capacity', 'socket_lost', 'timeout', 'unauthorized', 'forbidden', 'contract'] as const),
  ...(['open', 'reset', 'world', 'expired', 'call', 'grade'] as const),
  ...(['canary', 'unsteady', 'verifier_failed', 'judge_error', 'no_number'] as const),
] as const;

export type Outcome = z.infer<typeof outcome>;
const outcome = z.discriminatedUnion('status', [
  z.strictObject({ status: z.literal('graded'), value: z.number() }),
  z.strictObject({ status: z.literal('unknown'), reason: text, failures: count }),
]);

export type TurnRecord = z.infer<typeof turn>;
const turn = z.strictObject({
  policy_step: count.describe('step whose state sampled the turn'),
  start: count.describe('the turn sampled `tokens[start..end)`'),
  end: count,
  tool: text.exactOptional(),
  error: z.boolean().exactOptional().describe('the call failed or, without `tool`, could not be parsed'),
});

export type StopReason = EpisodeRecord['stop_reason'];
export type EpisodeRecord = z.infer<typeof episode>;
export const episode = z
  .strictObject({
    schema: z.literal('longhaul.episode/2'),
    plan: digest.describe('digest of the plan; in an evaluation, of the suite'),
    state: digest,
    slot: count.describe('in an evaluation, index of the task'),
    sample: count,
    task_key: text,
    env_key: text,
    outcome: outcome.describe(
      `\`value\`: −1e100 to 1e100, 1 is full reward; \`reason\`: the last failure (${environmentReasons.map((name) => `\`${name}\``).join(', ')}), or \`prompt_too_long\`; \`failures\`: number of charged failures`,
    ),
    stop_reason: z
      .enum(['done', 'max_turns', 'length', 'unknown', 'ended'])
      .describe('`ended`: the environment ended the episode'),
    tokens: tokenIds.describe('the whole transcript, prompt first'),
    prompt_length: count,
    turns: z.array(turn),
    logprobs: logprobs.describe('log-probs of the sampled tokens, turn after turn'),
    metrics: z.strictObject({
      turns: count,
      tool_calls: count.describe('turns with `tool` or `error`'),
      tool_errors: count.describe('turns with `error`'),
    }),
    observed: z.strictObject({
      attempt: count,
      execution: text.describe('shared by the activity’s attempts: `run id/activity id/ms when scheduled`'),
      incarnation: text,
      failures: counts.describe('failures by reason, charged or not'),
      failure: text
        .exactOptional()
        .describe(
          'the server’s text of the last failure, at most 500 printable characters, without known secrets',
        ),
      explanation: text.exactOptional().describe('from the grader'),
      started_at: time,
      seconds: amount,
    }),
  })
  .superRefine((record, context) => {
    const problem = transcriptProblem(record);
    if (problem) context.addIssue({ code: 'custom', message: problem });
  });

/** First line of `episodes.jsonl.gz`, the file of folded episodes of a committed step or a whole evaluation (R23). */
const lines = count.describe('number of lines after the first');
export const episodes = z.discriminatedUnion('schema', [
  z.strictObject({ schema: z.literal('longhaul.episodes/1'), run: text, step: positive, count: lines }),
  z.strictObject({ schema: z.literal('longhaul.episodes/2'), state: digest, suite: digest, count: lines }),
]);

/** Says what is wrong with an episode's token ranges, or null. */
function transcriptProblem(
  record: Pick<EpisodeRecord, 'prompt_length' | 'tokens' | 'turns' | 'logprobs'>,
): string | null {
  if (record.prompt_length > record.tokens.length) {
    return `prompt_length ${record.prompt_length} is more than its ${record.tokens.length} tokens`;
  }
  let position = record.prompt_length;
  let sampled = 0;
  for (const [i, { start, end }] of record.turns.entries()) {
    if (start < position || end < start || end > record.tokens.length) {
      return `turns[${i}] = [${start}, ${end}) does not fit between ${position} and ${record.tokens.length}`;
    }
    position = end;
    sampled += end - start;
  }
  return sampled === record.logprobs.length
    ? null
    : `${record.logprobs.length} log-probs for ${sampled} sampled tokens`;
}
