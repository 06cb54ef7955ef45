// Simulates the benefit of a curriculum: the share of groups with different outcomes in a run on environments of fixed difficulty. The functions
// that plan real runs plan it. Random numbers are keyed, so every machine gets the same figures.
import { planOf, type StepBefore } from '../../src/activities/step/step-plan.js';
import { uniform } from '../../src/rl/random.js';
import type { GrpoPlan } from '../../src/spec/records/plan.js';
import type { RunRecord } from '../../src/spec/records/run-records.js';
import type { Task } from '../../src/spec/records/task.js';
import { parseRunSpec } from '../../src/spec/spec-input.js';

/** Pass rate of every task, by environment: two are saturated, one is dead, two are learnable. */
const passRates: Readonly<Record<string, number>> = {
  ...{ saturated_1: 0.97, saturated_2: 0.97 },
  dead: 0,
  ...{ learnable_1: 0.3, learnable_2: 0.6 },
};
const tasksPerEnvironment = 200;
const samples = 8;
const steps = 200;

export interface CurriculumFigures {
  /** Share of groups with different outcomes when all tasks are equally likely. */
  uniform: number;
  /** The same with `curriculum: {by: env}`. */
  by_env: number;
  gain: number;
}

export async function measureCurriculum(): Promise<CurriculumFigures> {
  const drawnUniformly = await shareWithSignal({});
  const byEnvironment = await shareWithSignal({ curriculum: { by: 'env' } });
  return { uniform: drawnUniformly, by_env: byEnvironment, gain: byEnvironment / drawnUniformly };
}

async function shareWithSignal(trainer: Record<string, unknown>): Promise<number> {
  const data = simulatedData(trainer);
  let before: StepBefore | null = null;
  let [groups, withSignal] = [0, 0];
  for (let step = 1; step <= steps; step++) {
    const plan: GrpoPlan = await planned(data, step, before);
    const outcomes = plan.slots.map(({ slot, env_key }) =>
      Array.from({ length: samples }, (_, sample) =>
        Number(uniform(data.record.seed, step, slot, sample, 'outcome') < (passRates[env_key] as number)),
      ),
    );
    groups += outcomes.length;
    withSignal += outcomes.filter((values) => new Set(values).size > 1).length;
    before = { plan, identity: { applied: true, outcomes } };
  }
  return withSignal / groups;
}

type SimulatedData = Parameters<typeof planOf>[0]['data'];

function simulatedData(trainer: Record<string, unknown>): SimulatedData {
  const spec = parseRunSpec({
    name: 'simulated',
    model: {
      name: 'none',
      architecture: {
        ...{ vocab_size: 64, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1 },
        ...{ num_attention_heads: 1, num_key_value_heads: 1, head_dim: 32 },
      },
      ...{ tokenizer: '/tokenizer.json', chat_template: '/chat_template.jinja' },
    },
    data: { tasks: '/tasks.jsonl' },
    environments: Object.keys(passRates).map((env_key) => ({ env_key })),
    generator: { n_samples_per_prompt: samples },
    trainer: { max_training_steps: steps, ...trainer },
  });
  const tasks = Object.keys(passRates).flatMap((env_key) =>
    Array.from({ length: tasksPerEnvironment }, (_, index): Task => {
      const task_key = `${env_key}_${index}`;
      const usual = { prompt: 'Do it.', env_variables: {}, difficulty: 1, split: 'train' as const };
      return { task_key, env_key, template: env_key, ...usual };
    }),
  );
  const pools = new Map(
    Object.keys(passRates).map((env) => [
      env,
      tasks.filter(({ env_key }) => env_key === env).map(({ task_key }) => task_key),
    ]),
  );
  const record: RunRecord = {
    ...{ schema: 'longhaul.run/3', run: 'simulated', name: 'simulated', seed: 1, spec, lineage: null },
    ...{ base_model: none, tokenizer: none, chat_template: none, tool_parser: 'none' },
    dataset: { name: 'simulated', version: '1', digest: none },
    observed: { started_at: '2026-01-01T00:00:00.000Z' },
  };
  return {
    record,
    trainTasks: { template: pools, env: pools },
    taskByKey: new Map(tasks.map((task) => [task.task_key, task])),
    demonstrationsByKind: new Map(),
  };
}

/** A digest in place of those of records, which the simulation does not have. */
const none = '0'.repeat(64);

async function planned(data: SimulatedData, step: number, before: StepBefore | null): Promise<GrpoPlan> {
  const plan = await planOf({
    own: {
      ...{ schema: 'longhaul.plan/4', run: 'simulated', step, previous_state: none },
      ...{ numerics: { backend: 'cpu', version: 1 }, control: 0, owner: 1 },
      ...{ run_digest: none, control_digest: none, owner_digest: none },
    },
    ...{ data, before, rebases: null },
    control: { n: 0, paused: false, stopAfter: null, lr: null, temperature: null },
    reference: () => Promise.reject(new Error('the plan has no KL term')),
  });
  if (plan.kind !== 'grpo') throw new Error(`step ${step} is no GRPO step`);
  return plan;
}
