// A small app with a counter, for cases that the example apps never show: bugs, huge outputs, faults at a chosen turn.
import type { FaultSource, ServedApp } from '../../examples/apps/server/app-session.js';
import {
  createEnvironmentServer,
  type EnvironmentServer,
  type EnvironmentServerOptions,
} from '../../examples/apps/server/environment-server.js';
import type { Task } from '../../src/spec/records/task.js';

export const token = 'grading-token';

export function counterTask(number: number): Task {
  return {
    task_key: `counter/up/${number}`,
    prompt: `Count to ${number}.`,
    env_key: 'counter',
    env_variables: { CURRENT_DATE: '2026-01-15' },
    difficulty: 1,
    template: 'counter/up',
    split: 'train',
  };
}

const parameters = { type: 'object' as const, properties: {} };

export const worlds = { open: 0, opened: 0 };

export const counter: ServedApp = {
  name: 'counter',
  description: 'counts',
  tools: [
    { name: 'increment', description: 'Adds one.', input_schema: parameters },
    { name: 'refuse', description: 'Says what was wrong.', input_schema: parameters },
    { name: 'crash', description: 'Has a defect.', input_schema: parameters },
    { name: 'shout', description: 'Ten megabytes.', input_schema: parameters },
  ],
  task: (key) => (/^counter\/up\/\d+$/.test(key) ? counterTask(Number(key.split('/')[2])) : undefined),
  numTasks: (split) => ({ train: 4, held_out: 1 })[split],
  taskAt: (split, index): Task => counterTask(split === 'train' ? index + 1 : 9),
  open(task) {
    let count = 0;
    let open = true;
    worlds.open++;
    worlds.opened++;
    return {
      call(name) {
        if (name === 'increment') return { text: String(++count), isError: false };
        if (name === 'refuse') return { text: 'repository x not found', isError: true };
        if (name === 'crash') throw new Error('table counter has no column n');
        if (name === 'shout') return { text: 'x'.repeat(10_000_000), isError: false };
        return { text: `unknown tool ${name}`, isError: true };
      },
      grade: (finalAnswer) => ({
        value: count === Number(task.task_key.split('/')[2]) ? 1 : 0,
        explanation: `counted to ${count}; answered ${JSON.stringify(finalAnswer)}`,
      }),
      close() {
        if (open) worlds.open--;
        open = false;
      },
    };
  },
};

export const noFaults: FaultSource = { toolError: () => undefined, infrastructure: () => undefined };

export function startCounterServer(
  options: Partial<EnvironmentServerOptions> = {},
): Promise<EnvironmentServer> {
  return createEnvironmentServer({
    port: 0,
    apps: [counter],
    faults: noFaults,
    gradingToken: token,
    ...options,
  });
}
