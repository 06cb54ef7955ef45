// Worker thread: generates the built-in apps' data, which takes seconds.
import { answerCalls } from '../base/worker-thread.js';
import { generateDemonstrations, generateTasks } from '../environments/apps/generate.js';
import type { BuiltinDataSpec } from '../spec/run-spec.js';

const lines = (items: readonly unknown[]): string =>
  items.map((item) => `${JSON.stringify(item)}\n`).join('');
answerCalls((spec: BuiltinDataSpec) => ({
  tasks: lines(generateTasks(spec)),
  demonstrations: lines(generateDemonstrations(spec)),
}));
