// The smallest run in which every step changes the weights. One supervised step teaches right and wrong answers to two tasks, so that every
// GRPO step has groups with a learning signal.
import { toolFormat } from '../../src/episode/tool-formats/tool-format.js';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { generateTasks } from '../../examples/apps/generate.js';
import { appByName } from '../../examples/apps/registry.js';
import { oracle } from '../../examples/apps/task-key.js';
import { systemPrompt } from '../../src/episode/system-prompt.js';
import { readSpecFile } from '../../src/spec/spec-input.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import type { Demonstration, Task } from '../../src/spec/records/task.js';

const preset = fileURLToPath(new URL('../../presets/tiny.yaml', import.meta.url));

export interface SmallRun {
  /** Number of train tasks. With one task, each step contains it more than once. */
  tasks?: 1 | 2;
}

/** Writes the data into `folder`. `named` makes the spec of one run. */
export async function smallRun(folder: string, { tasks: count = 2 }: SmallRun = {}) {
  mkdirSync(folder, { recursive: true });
  const tasks = generateTasks({ apps: ['tracker', 'booking'], seed: 1, train_tasks: 2, held_out_tasks: 2 });
  const kept = tasks.filter(({ split }, index) => split === 'held_out' || index < count);
  const demonstrations = kept.filter(({ split }) => split === 'train').flatMap(rightAndWrong);
  const lines = (items: readonly object[]) => items.map((item) => `${JSON.stringify(item)}\n`).join('');
  const data = {
    tasks: join(folder, 'tasks.jsonl'),
    demonstrations: join(folder, 'demonstrations.jsonl'),
    eval_tasks: 2,
    final_eval_tasks: 2,
  };
  writeFileSync(data.tasks, lines(kept));
  writeFileSync(data.demonstrations, lines(demonstrations));
  const tiny = await readSpecFile(preset);
  const spec: RunSpec = {
    ...tiny,
    data,
    environments: [{ env_key: 'tracker' }, { env_key: 'booking' }],
    warm_start: [
      {
        name: 'answers',
        demonstrations: 'answers',
        updates: 100,
        mini_batches_per_step: 100,
        mini_batch_size: demonstrations.length,
        lr: 1e-2,
        warmup_updates: 4,
        decay_share: 0,
        adam_betas: [0.9, 0.95],
      },
    ],
    generator: { ...tiny.generator, temperature: 1, max_turns: 2, n_samples_per_prompt: 4 },
    trainer: {
      ...tiny.trainer,
      train_batch_size: 2,
      max_training_steps: 3,
      lr: 1e-3,
      ckpt_interval: 2,
      eval_interval: 100,
    },
  };
  return { named: (name: string): RunSpec => ({ ...spec, name }) };
}

/** Half of the demonstrations solve the task. */
function rightAndWrong(task: Task): Demonstration[] {
  const [call] = oracle(task.task_key);
  if (!call) throw new Error(`${task.task_key} has no oracle`);
  const answer = (name: string): string =>
    `<tool_call>${JSON.stringify({ name, arguments: call.arguments })}</tool_call>`;
  // Data from files carries no tools, so the system prompt is written out.
  const prompt = systemPrompt({
    env_variables: task.env_variables,
    tools: appByName(task.env_key).tools,
    sampling: { system_prompt: 'short', tools_format: 'signatures' },
    format: toolFormat('hermes'),
    quote: (text) => text,
  });
  return [call.name, 'echo'].map((name) => ({
    kind: 'answers',
    messages: [
      { role: 'user', content: `${prompt}\n${task.prompt}` },
      { role: 'assistant', content: answer(name) },
      { role: 'tool', content: '{}' },
      { role: 'assistant', content: '<done>' },
    ],
  }));
}
