// Writes the records of a long run for measuring the report, with the same writers as a real run. Its episodes are calls of the example
// apps' teacher with real results, and some of them are made to fail. Its metrics are invented.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatasetCache } from '../../src/data/dataset-cache.js';
import { summarise } from '../../src/activities/evaluation/suite-evaluation.js';
import { openRun } from '../../src/activities/run/open-run.js';
import type { OrchestratorDeps } from '../../src/activities/orchestrator-deps.js';
import { ProcessLife } from '../../src/activities/attempt/process-life.js';
import { type RunData, RunDataCache } from '../../src/data/run-data.js';
import { evaluationSampling, samplingOf } from '../../src/rl/sampling.js';
import { tokenizeDemonstration } from '../../src/episode/demonstration.js';
import { episodeMetrics, rewardMetrics } from '../../src/rl/metrics.js';
import type { SuiteRecord } from '../../src/spec/records/evaluation-records.js';
import type { EpisodeRecord } from '../../src/spec/records/episode.js';
import type { GrpoPlan } from '../../src/spec/records/plan.js';
import type { SamplingPlan } from '../../src/spec/records/parts.js';
import { servedAt } from '../../src/cli/train/example-server.js';
import { generateDemonstrations } from '../../examples/apps/generate.js';
import { servedApps, faultsOfApps, listsOf } from '../../examples/apps/server/served-apps.js';
import { createEnvironmentServer } from '../../examples/apps/server/environment-server.js';
import { readSpecFile } from '../../src/spec/spec-input.js';
import type { Demonstration, DemonstrationMessage } from '../../src/spec/records/task.js';
import { recordDigest } from '../../src/store/records/canonical.js';
import { sha256Hex } from '../../src/base/sha256.js';
import { encodeFolded } from '../../src/store/runs/folded-episodes.js';
import {
  evaluationEpisodeKey,
  evaluationResultKey,
  evaluationSuiteKey,
  foldedEpisodesKey,
  planKey,
  updateKey,
} from '../../src/store/record-keys.js';
import type { ObjectStore } from '../../src/store/objects/object-store.js';
import { adoptOrCreate, recordFunction } from '../../src/store/records/records.js';
import { repository } from '../repository.js';

/** 1,000 steps of 8 episodes, and 20 evaluations of 100. */
const [steps, groups, samples] = [1_000, 2, 4];
const [evalInterval, evalTasks] = [55, 100];

const numerics = { backend: 'cpu', version: 1 } as const;
const engine = { build: 'longhaul-engine 0.1.0', incarnation: 'bench' };
const start = Date.UTC(2026, 0, 2, 3);
const stateAfter = (step: number): string => sha256Hex(`state ${step}`);
const at = (step: number): string => new Date(start + step * 30_000).toISOString();

/** Resolves to the name of the run. */
export async function recordLongRun(store: ObjectStore): Promise<string> {
  const data = await openedRun(store);
  const { run, base_model } = data.record;
  const writer = new EpisodeWriter(data);
  await recordFunction(store, updateKey(run, 0), 'base', {
    schema: 'longhaul.base/1',
    identity: { run, step: 0, base_model, state: stateAfter(0), numerics },
    observed: { engine, committed_at: at(0) },
  });
  for (let step = 0; step <= steps; step++) {
    if (step > 0) await recordStep(store, data, writer, step);
    const isEnd = step === 0 || step === steps;
    if (isEnd || step % evalInterval === 0)
      await recordEvaluation(store, data, writer, step, isEnd ? 'final' : 'interval');
  }
  return run;
}

async function openedRun(store: ObjectStore): Promise<RunData> {
  const quickstart = await readSpecFile(join(repository, 'presets/quickstart.yaml'));
  const prompts = steps * groups + evalTasks;
  const folder = await mkdtemp(join(tmpdir(), 'longhaul-bench-report-'));
  const shown = generateDemonstrations({
    ...{ apps: ['tracker', 'booking'], seed: 1, drill_demonstrations: 2, teacher_demonstrations: prompts },
  });
  const demonstrations = join(folder, 'demonstrations.jsonl');
  await writeFile(demonstrations, shown.map((one) => `${JSON.stringify(one)}\n`).join(''));
  const server = await createEnvironmentServer({
    ...{ port: 0, apps: servedApps(), listsOf, faults: faultsOfApps, gradingToken: 'bench' },
  });
  const spec = {
    ...servedAt(quickstart, server.url),
    name: 'long-run',
    data: {
      tasks: `openenv+${server.url}/tracker,booking?split=train:64&held_out=held_out:${evalTasks}`,
      ...{ demonstrations, eval_tasks: evalTasks, final_eval_tasks: evalTasks },
    },
    warm_start: [],
    generator: { ...quickstart.generator, n_samples_per_prompt: samples },
    trainer: {
      ...quickstart.trainer,
      ...{ train_batch_size: groups, max_training_steps: steps },
      ...{ eval_interval: evalInterval, target_pass_at_1: 0 },
    },
  };
  const datasets = new DatasetCache(store);
  const deps: OrchestratorDeps = {
    ...{ store, datasets, runs: new RunDataCache(store, datasets), temporalAddress: '127.0.0.1:7233' },
    life: new ProcessLife({ name: 'bench', host: 'bench', pid: process.pid }, null, 'orchestrator_restart'),
    clusterId: () => Promise.resolve('cluster'),
    ownerState: () => Promise.resolve('closed'),
    requestLease: () => Promise.resolve(),
    isOver: () => Promise.resolve(false),
    log: () => undefined,
  };
  const id = '00000000-0000-0000-0000-000000000000';
  const workflow = { workflowId: 'train/long-run', runId: id, firstExecutionRunId: id, namespace: 'default' };
  try {
    await openRun(deps, { spec, workflow });
  } finally {
    await server.close();
    await rm(folder, { recursive: true });
  }
  return deps.runs.get(spec.name);
}

async function recordStep(
  store: ObjectStore,
  data: RunData,
  writer: EpisodeWriter,
  step: number,
): Promise<void> {
  const { record } = data;
  const { run } = record;
  const previous_state = stateAfter(step - 1);
  const slots = Array.from({ length: groups }, (_, slot) => writer.slot(slot, (step - 1) * groups + slot));
  const plan: GrpoPlan = {
    ...{ schema: 'longhaul.plan/4', kind: 'grpo', run, step, previous_state },
    ...{ run_digest: record.base_model, control_digest: record.base_model, owner_digest: record.base_model },
    optimizer: {
      ...{ learning_rates: [0.001], adam_betas: [0.9, 0.95], adam_eps: 1e-8, weight_decay: 0 },
      ...{ max_grad_norm: 1, reset_moments: false },
    },
    loss: { kind: 'regular', reduction: 'token_mean', eps_clip_low: 0.2, eps_clip_high: 0.28 },
    curriculum: { pass_rates: {}, cursors: {} },
    digests: digestsOf(data),
    ...{ numerics, control: 0, owner: 1, slots, samples_per_slot: samples },
    advantages: { estimator: 'grpo', norm_by_std: true, deviation: 'population', eps: 1e-6 },
    sampling: samplingOf(record.spec.generator),
  };
  await adoptOrCreate(store, planKey(run, step), 'plan', plan);
  const digest = recordDigest(plan);
  const progress = step / steps;
  const episodes: EpisodeRecord[] = [];
  for (const { slot } of slots)
    for (let sample = 0; sample < samples; sample++)
      episodes.push(
        await writer.episode((step - 1) * groups + slot, plan.sampling, {
          ...{ plan: digest, state: previous_state, slot, sample, policy_step: step - 1, progress },
        }),
      );
  const recordedAt = new Date(at(step));
  const folded = await encodeFolded(
    { run, step },
    episodes.map((one) => ({ record: one, recordedAt })),
  );
  if (folded === null) throw new Error(`the episodes of step ${step} do not fit into one file`);
  await store.create(foldedEpisodesKey(run, step), folded);
  const valueOf = ({ outcome }: EpisodeRecord): number | null =>
    outcome.status === 'graded' ? outcome.value : null;
  const outcomes = slots.map(({ slot }) => episodes.filter((one) => one.slot === slot).map(valueOf));
  const rewards = slots.map(({ env_key }, slot) => ({ env: env_key, values: outcomes[slot] ?? [] }));
  await recordFunction(store, updateKey(run, step), 'update', {
    schema: 'longhaul.update/4',
    identity: {
      ...{ run, step, kind: 'grpo', plan: digest, batch: sha256Hex(`batch ${step}`), previous_state },
      ...{ state: stateAfter(step), step_id: sha256Hex(`id ${step}`), numerics, applied: true, outcomes },
    },
    observed: {
      metrics: {
        ...rewardMetrics(rewards),
        ...episodeMetrics(episodes),
        ...{ 'policy/grad_norm': 0.5 - 0.3 * progress, 'policy/policy_kl': 0.1 * progress },
        ...{ 'policy/policy_entropy': 0.9 - 0.6 * progress, 'policy/final_loss': -0.01 },
      },
      timings_ms: { step: 28_000 + (step % 17) * 200 },
      ...{ engine, committed_at: at(step), worker: 'bench@bench pid 1' },
    },
  });
}

async function recordEvaluation(
  store: ObjectStore,
  data: RunData,
  writer: EpisodeWriter,
  step: number,
  name: 'interval' | 'final',
): Promise<void> {
  const { record } = data;
  const sampling = evaluationSampling(record.spec.generator);
  const first = steps * groups;
  const suite: SuiteRecord = {
    ...{ schema: 'longhaul.suite/2', name, samples_per_task: 1, sampling, seed: record.seed, numerics },
    tasks: Array.from({ length: evalTasks }, (_, slot) => {
      const { slot: _slot, ...task } = writer.slot(slot, first + slot);
      return task;
    }),
    digests: digestsOf(data),
    environments: {},
  };
  const [state, digest] = [stateAfter(step), recordDigest(suite)];
  await adoptOrCreate(store, evaluationSuiteKey(state, digest), 'suite', suite);
  const episodes: EpisodeRecord[] = [];
  for (let slot = 0; slot < evalTasks; slot++) {
    const episode = await writer.episode(first + slot, sampling, {
      ...{ plan: digest, state, slot, sample: 0, policy_step: step, progress: step / steps },
    });
    episodes.push(episode);
    await adoptOrCreate(store, evaluationEpisodeKey(state, digest, slot, 0), 'episode', episode);
  }
  await adoptOrCreate(store, evaluationResultKey(state, digest), 'evaluation', {
    ...summarise(episodes, suite, digest, state),
    observed: { run: record.run, step, seconds: 30, committed_at: at(step), metrics: {} },
  });
}

function digestsOf({ record }: RunData): GrpoPlan['digests'] {
  const { tokenizer, chat_template, tool_parser, dataset } = record;
  return { tokenizer, chat_template, tool_parser, dataset: dataset.digest };
}

interface Rollout {
  plan: string;
  state: string;
  slot: number;
  sample: number;
  policy_step: number;
  /** 0 at the run's beginning, 1 at its end. Fewer episodes fail towards the end. */
  progress: number;
}

/** Writes episodes from the teacher's demonstrations. */
class EpisodeWriter {
  private readonly shown: Demonstration[];

  constructor(private readonly data: RunData) {
    this.shown = data.demonstrations.filter(({ kind }) => kind === 'teacher');
  }

  slot(
    slot: number,
    n: number,
  ): { slot: number; task_key: string; env_key: string; template: string; seed: number } {
    const { task_key = '', env_key = '' } = this.demonstration(n);
    return { slot, task_key, env_key, template: task_key.split('/').slice(0, 2).join('/'), seed: n };
  }

  async episode(n: number, sampling: SamplingPlan, rollout: Rollout): Promise<EpisodeRecord> {
    const { plan, state, slot, sample, policy_step, progress } = rollout;
    const shown = this.demonstration(n);
    const { task_key = '', env_key = '' } = shown;
    const luck = fraction(`${state}/${slot}/${sample}`);
    const spoiling =
      luck < 0.6 * (1 - progress) ? spoilings[Math.floor(luck * 1e4) % spoilings.length] : undefined;
    const messages = spoiling ? spoiling(shown.messages) : shown.messages;
    const tools = this.data.tools[env_key] ?? null;
    const { tokens, prompt_length, spans } = await tokenizeDemonstration(
      this.data,
      { ...shown, messages },
      tools,
      sampling,
    );
    const said = messages.slice(1).filter(({ role }) => role === 'assistant');
    const turns = spans.map(({ start, end }, index) => {
      const tool = toolOf(said[index]?.content ?? '');
      const answer = messages[2 + 2 * index];
      const error = tool !== null && answer?.role === 'tool' && answer.content.startsWith('{"error"');
      return { policy_step, start, end, ...(tool === null ? {} : { tool }), ...(error ? { error } : {}) };
    });
    const isDone = said.at(-1)?.content.includes('<done>') === true;
    const calls = turns.filter(({ tool }) => tool !== undefined).length;
    const unknown = luck > 0.995;
    return {
      ...{ schema: 'longhaul.episode/2', plan, state, slot, sample, task_key, env_key },
      outcome: unknown
        ? { status: 'unknown', reason: 'grade_failed', failures: 3 }
        : { status: 'graded', value: spoiling || luck > 0.9 ? 0 : 1 },
      stop_reason: unknown ? 'unknown' : isDone ? 'done' : 'max_turns',
      ...{ tokens, prompt_length, turns },
      logprobs: spans.flatMap(({ start, end }) => Array.from({ length: end - start }, () => -0.0625)),
      metrics: {
        turns: turns.length,
        tool_calls: calls,
        tool_errors: turns.filter(({ error }) => error).length,
      },
      observed: {
        ...{ attempt: 1, execution: 'bench', incarnation: 'bench', failures: {} },
        ...{ started_at: at(policy_step), seconds: 2 },
      },
    };
  }

  private demonstration(n: number): Demonstration {
    const shown = this.shown[n % this.shown.length];
    if (!shown) throw new Error('the data set has no demonstrations of the teacher');
    return shown;
  }
}

type Spoiling = (messages: readonly DemonstrationMessage[]) => DemonstrationMessage[];

/** Ways in which an episode fails: it ends at once, repeats a call three times, asks for an id that does not exist, or never ends. */
const spoilings: Spoiling[] = [
  (messages) => [...messages.slice(0, 1), { role: 'assistant', content: 'All done. <done>' }],
  // A demonstration without calls is left as it is.
  (messages) => {
    const call = messages.length < 4 ? [] : messages.slice(1, 3);
    return [...messages.slice(0, 1), ...call, ...call, ...messages.slice(1)];
  },
  (messages) => {
    const number = messages.length * 37;
    return [
      ...messages.slice(0, 1),
      {
        role: 'assistant',
        content: `<tool_call>{"name":"get_issue","arguments":{"id":"ISS-${number}"}}</tool_call>`,
      },
      { role: 'tool', content: `{"error":"there is no issue ISS-${number}"}` },
      { role: 'assistant', content: '<done>' },
    ];
  },
  (messages) => messages.slice(0, 2),
];

function toolOf(text: string): string | null {
  return /<tool_call>\{"name":"([a-z_]+)"/.exec(text)?.[1] ?? null;
}

/** A number in [0, 1) that depends only on the text. */
function fraction(text: string): number {
  return parseInt(sha256Hex(text).slice(0, 8), 16) / 2 ** 32;
}
