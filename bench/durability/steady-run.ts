// A run whose steps take milliseconds and always have a learning signal. One supervised step teaches a tiny model one right and one wrong
// call. After that the learning rate is close to 0, so the model keeps sampling both calls.
import { toolFormat } from '../../src/episode/tool-formats/tool-format.js';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { generateTasks } from '../../examples/apps/generate.js';
import { appByName } from '../../examples/apps/registry.js';
import { oracle } from '../../examples/apps/task-key.js';
import { systemPrompt } from '../../src/episode/system-prompt.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import { readSpecFile } from '../../src/spec/spec-input.js';
import type { Demonstration, Task } from '../../src/spec/records/task.js';
import { repository } from '../repository.js';

export interface SteadyRun {
  name: string;
  /** Number of steps, including the supervised one. */
  steps: number;
}

/** Writes the run's data into `folder`. A step has one group of four episodes with one turn each. */
export async function steadyRun(folder: string, { name, steps }: SteadyRun): Promise<RunSpec> {
  const tasks = generateTasks({ apps: ['tracker'], seed: 1, train_tasks: 1, held_out_tasks: 2 });
  const demonstrations = tasks.filter(({ split }) => split === 'train').flatMap(rightAndWrong);
  mkdirSync(folder, { recursive: true });
  const data = {
    ...{ tasks: join(folder, 'tasks.jsonl'), demonstrations: join(folder, 'demonstrations.jsonl') },
    ...{ eval_tasks: 2, final_eval_tasks: 2 },
  };
  const lines = (items: readonly object[]): string =>
    items.map((item) => `${JSON.stringify(item)}\n`).join('');
  writeFileSync(data.tasks, lines(tasks));
  writeFileSync(data.demonstrations, lines(demonstrations));
  const tiny = await readSpecFile(join(repository, 'presets/tiny.yaml'));
  return {
    ...tiny,
    ...{ name, project: 'bench', data, environments: [{ env_key: 'tracker' }] },
    warm_start: [
      {
        ...{ name: 'answers', demonstrations: 'answers', updates: 100, mini_batches_per_step: 100 },
        ...{ mini_batch_size: demonstrations.length, lr: 1e-2, warmup_updates: 4, decay_share: 0.3 },
        adam_betas: [0.9, 0.95],
      },
    ],
    generator: { ...tiny.generator, temperature: 1, max_turns: 1, n_samples_per_prompt: 4 },
    trainer: {
      ...tiny.trainer,
      ...{ train_batch_size: 1, max_training_steps: steps - 1, lr: 1e-9 },
      ...{ ckpt_interval: 50, eval_interval: 500 },
    },
  };
}

/** Two demonstrations; one of them solves the task. */
function rightAndWrong(task: Task): Demonstration[] {
  const [call] = oracle(task.task_key);
  if (!call) throw new Error(`${task.task_key} has no oracle`);
  // The prompt is written out, because demonstrations in files carry no tools.
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
      {
        role: 'assistant',
        content: `<tool_call>${JSON.stringify({ name, arguments: call.arguments })}</tool_call>`,
      },
    ],
  }));
}
