// The records of a run with two supervised and forty GRPO steps, two restarts and one change.
import { readFileSync } from 'node:fs';
import { loadChatTemplate } from '../../src/episode/chat-template.js';
import { toolFormat } from '../../src/episode/tool-formats/tool-format.js';
import { loadTokenizer, type Tokenizer } from '../../src/episode/tokenizer.js';
import type { TranscriptCoder } from '../../src/report/transcripts/transcripts.js';
import type { RunHistory } from '../../src/report/history/run-history.js';
import type { EvaluationResult } from '../../src/spec/records/evaluation-records.js';
import type { EpisodeRecord } from '../../src/spec/records/episode.js';
import type { UpdateRecord } from '../../src/spec/records/update.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import { recordDigest } from '../../src/store/records/canonical.js';
import {
  attemptFolder,
  controlFolder,
  datasetManifestKey,
  evaluationResultKey,
  evaluationSuiteKey,
  runEvaluationKey,
  ownersFolder,
  planKey,
  runKey,
  sequenceKey,
  updateKey,
} from '../../src/store/record-keys.js';
import type { ObjectStore } from '../../src/store/objects/object-store.js';
import { encodeRecord } from '../../src/store/records/record-codec.js';
import type { RecordKind, RecordTypes } from '../../src/spec/records/record-kinds.js';
import { memoryStore } from '../workers/follower/memory-store.js';
import { recordsOfAllKinds } from '../store/fixtures.js';

export const steps = 42;
export const firstGrpo = 3;
/** From this step on a new engine is used. */
export const engineDiedAt = 20;
/** From this step on the node worker is new, too. Its plan is the first one with the change of lr. */
export const workerDiedAt = 30;
export const targetPassRate = 0.9;
/** Number of tasks in each suite. */
export const suiteSizes = { interval: 85, final: 205 };
export type SuiteName = keyof typeof suiteSizes;
const start = Date.parse('2026-01-02T03:00:00.000Z');

export const stateAfter = (step: number): string => step.toString(16).padStart(64, '0');
const at = (minutes: number): string => new Date(start + minutes * 60_000).toISOString();

export async function recordedRun(): Promise<ObjectStore> {
  const store = memoryStore();
  const base = recordsOfAllKinds();
  const write = writer(store);
  const { name, version } = base.run.dataset;
  await write(datasetManifestKey(name, version), 'dataset', { ...base.dataset, held_out_tasks: 500 });
  await write(runKey('tiny'), 'run', { ...base.run, spec: specOf(base), observed: { started_at: at(0) } });
  await write(updateKey('tiny', 0), 'base', {
    ...base.base,
    identity: { ...base.base.identity, state: stateAfter(0) },
  });
  for (let step = 1; step <= steps; step++) {
    const kind = step < firstGrpo ? 'sft' : 'grpo';
    const plan: RecordTypes['plan'] = {
      ...base.plan,
      step,
      previous_state: stateAfter(step - 1),
      control: step < workerDiedAt ? 0 : 1,
    };
    await write(planKey('tiny', step), 'plan', plan);
    await write(updateKey('tiny', step), 'update', updateOf(base.update, step, kind, recordDigest(plan)));
    if (kind === 'sft') continue;
    const observed = { node: 'n1@host', pid: step < workerDiedAt ? 12 : 13, at: at(step) };
    const attempt = { ...base.attempt, attempt: 'x-1', observed };
    await write(sequenceKey(attemptFolder('tiny', step, 'collect', 'x-1'), 1), 'attempt', attempt);
  }
  await addEvaluation(store, { step: 2, name: 'final' });
  await addEvaluation(store, { step: 22, name: 'interval' });
  await addEvaluation(store, { step: 42, name: 'final' });
  await write(sequenceKey(ownersFolder('tiny'), 1), 'owner', base.owner);
  await write(sequenceKey(ownersFolder('tiny'), 2), 'owner', { ...base.owner, n: 2 });
  await write(sequenceKey(controlFolder('tiny'), 1), 'control', base.control);
  return store;
}

function writer(store: ObjectStore) {
  return async <Kind extends RecordKind>(
    key: string,
    kind: Kind,
    record: RecordTypes[Kind],
  ): Promise<void> => {
    await store.create(key, await encodeRecord(kind, record));
  };
}

/** Two supervised steps, then forty GRPO steps with an evaluation after every twenty. */
function specOf({ run, suite }: RecordTypes): RunSpec {
  return {
    ...run.spec,
    data: { eval_tasks: suiteSizes.interval, final_eval_tasks: suiteSizes.final },
    warm_start: [{ name: 'drill', updates: 4, mini_batches_per_step: 2 }],
    generator: { ...suite.sampling, temperature: 0.7 },
    trainer: { max_training_steps: 40, eval_interval: 20, target_pass_at_1: targetPassRate },
  } as unknown as RunSpec;
}

export interface EvaluationOptions {
  step: number;
  name: SuiteName;
  /** The run that played the evaluation. */
  by?: string;
  /** The fields in which the suite differs from this run's suite. */
  suite?: Partial<RecordTypes['suite']>;
  tasks?: number;
  pass_at_1?: number;
}

export async function addEvaluation(
  store: ObjectStore,
  { step, name, by = 'tiny', suite = {}, tasks = suiteSizes[name], pass_at_1 }: EvaluationOptions,
): Promise<void> {
  const base = recordsOfAllKinds();
  const task = base.suite.tasks[0]!;
  const { tokenizer, chat_template, tool_parser, dataset } = base.run;
  const played: RecordTypes['suite'] = {
    ...base.suite,
    name,
    seed: base.run.seed,
    tasks: Array.from({ length: tasks }, (_, seed) => ({ ...task, seed })),
    digests: { tokenizer, chat_template, tool_parser, dataset: dataset.digest },
    ...suite,
  };
  const digest = recordDigest(played);
  const result = evaluationOf(base.evaluation, name, step);
  const write = writer(store);
  await write(evaluationSuiteKey(stateAfter(step), digest), 'suite', played);
  await write(evaluationResultKey(stateAfter(step), digest), 'evaluation', {
    ...result,
    suite: digest,
    pass_at_1: pass_at_1 ?? result.pass_at_1,
    observed: { ...result.observed, run: by },
  });
  const named = runEvaluationKey('tiny', step, name);
  await store.delete(named);
  await write(named, 'evaluated', {
    ...base.evaluated,
    ...{ step, suite_name: name, state: stateAfter(step), suite: digest },
  });
}

function updateOf(update: UpdateRecord, step: number, kind: 'sft' | 'grpo', plan: string): UpdateRecord {
  const [previous_state, state] = [stateAfter(step - 1), stateAfter(step)];
  const outcomes = kind === 'sft' ? [] : [[1, 0, null, 1]];
  return {
    ...update,
    identity: { ...update.identity, step, kind, plan, previous_state, state, outcomes },
    observed: {
      metrics:
        kind === 'sft'
          ? { 'policy/final_loss': 2 / step }
          : { 'reward/avg_raw_reward': step / 50, 'reward/signal_ratio': 0.5, 'policy/grad_norm': 0.1 },
      timings_ms: { step: 1500 },
      engine: { build: 'longhaul-engine 0.1.0', incarnation: step < engineDiedAt ? 'first' : 'second' },
      committed_at: at(step),
    },
  };
}

function evaluationOf(base: EvaluationResult, name: SuiteName, step: number): EvaluationResult {
  const [tracker, booking] = step < firstGrpo ? [0.25, 0.5] : [0.75, 0.5];
  const graded = name === 'final' ? 100 : 40;
  const part = (share: number, unknown: number): EvaluationResult['environments'][string] => ({
    pass_at_1: share,
    graded,
    unknown,
    mean_turns: 2,
    mean_tool_calls: 1,
    tool_errors: 10,
  });
  return {
    ...base,
    state: stateAfter(step),
    suite_name: name,
    pass_at_1: (tracker + booking) / 2,
    graded: 2 * graded,
    unknown: 5,
    environments: { booking: part(booking, 0), tracker: part(tracker, 5) },
    templates: {
      find: { passed: tracker * graded, graded },
      book: { passed: booking * graded, graded },
    },
    observed: { ...base.observed, step },
  };
}

/** The same run when only its first `step` steps were committed. */
export function until(history: RunHistory, step: number): RunHistory {
  return {
    ...history,
    updates: history.updates.filter((update) => update.identity.step <= step),
    evaluations: history.evaluations.filter((figure) => figure.step <= step),
  };
}

/** Tokens stand for the parts of an episode. The tests' `decode` maps them to text. */
export function episodeOf(task_key: string, outcome: EpisodeRecord['outcome']): EpisodeRecord {
  return { ...recordsOfAllKinds().episode, task_key, outcome };
}

/** Decoder for the fixture's episode: prompt 1–3, call 4–5, result 6, done 7. */
export function decodeWith(request: string, call: string, result: string): (tokens: number[]) => string {
  const text: Record<number, string> = {
    1: '<|im_start|>system\nCall one tool a turn.<|im_end|>\n',
    2: `<|im_start|>user\n${request}<|im_end|>\n`,
    3: '<|im_start|>assistant\n',
    4: '<tool_call>',
    5: `${call}</tool_call>`,
    6: `<|im_end|>\n<|im_start|>user\n${result}<|im_end|>\n<|im_start|>assistant\n`,
    7: '<done>',
  };
  return (tokens) => tokens.map((token) => text[token] ?? '?').join('');
}

const small = loadTokenizer(readFileSync('presets/tokenizers/small/tokenizer.json'));
const template = loadChatTemplate(
  readFileSync('presets/tokenizers/small/chat_template.jinja', 'utf8'),
  small,
);

/** The small model's coder, with tokens that stand for pieces of text. Whatever looks like one of its marks is one. */
export function coderOf(decode: (tokens: number[]) => string): TranscriptCoder {
  const encoded: string[] = [];
  const textOf = (tokens: readonly number[]): string =>
    tokens.map((token) => (token < 0 ? encoded[-token - 1] : decode([token]))).join('');
  const tokenizer: Tokenizer = {
    ...small,
    encode: (text) => [-encoded.push(text)],
    decode: textOf,
    decodeParts: (tokens) =>
      textOf(tokens)
        .split(/(<\|im_start\|>|<\|im_end\|>|<tool_call>|<\/tool_call>|<done>)/)
        .map((text, index) => ({ text, isControl: index % 2 === 1 }))
        .filter(({ text }) => text !== ''),
  };
  const format = toolFormat('hermes');
  return { tokenizer, template, format, eosTokens: [], tools: {}, taskByKey: new Map() };
}
