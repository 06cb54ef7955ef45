// Warnings about a dataset that can be used, but probably has a mistake.
import type { Task } from '../spec/records/task.js';

/** One sentence for each finding, with the fix. */
export function datasetWarnings(tasks: readonly Task[]): string[] {
  const heldOut = tasks.filter(({ split }) => split === 'held_out');
  if (tasks.length > 0 && heldOut.length === 0)
    return [
      'no task is held out, so no run on this dataset can be evaluated: mark tasks with "split": "held_out", or set split or held_out_envs',
    ];
  const trained = new Map<string, string>();
  for (const task of tasks) {
    const request = requestOf(task);
    if (task.split === 'train' && request !== null && !trained.has(request))
      trained.set(request, task.task_key);
  }
  const repeated = heldOut.flatMap((task) => {
    const other = trained.get(requestOf(task) ?? '');
    return other === undefined ? [] : [{ heldOut: task.task_key, trained: other }];
  });
  const [first] = repeated;
  if (!first) return [];
  const noun = repeated.length === 1 ? 'held-out task has' : 'held-out tasks have';
  return [
    `${repeated.length} ${noun} the prompt of a training task under another key, such as ${first.heldOut} that of ${first.trained}: ` +
      'an evaluation would measure what was trained; leave one of the two out',
  ];
}

/** The task's request, without differences of spaces and capitals; null if the environment shows it. */
function requestOf({ env_key, prompt, env_variables }: Task): string | null {
  const words = prompt.trim().replace(/\s+/g, ' ').toLowerCase();
  return words === '' ? null : JSON.stringify([env_key, words, Object.entries(env_variables).sort()]);
}
