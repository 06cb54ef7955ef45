// The quickstart's model and the shape of its episodes, for measurements of the engine alone.
import { join } from 'node:path';
import type { RandomModel } from '../../src/engine/file-engine.js';
import { readSpecFile } from '../../src/spec/spec-input.js';
import { repository } from '../repository.js';

/** Lengths of an app's tool list, a group's task and a tool's answer, in tokens. */
export const promptLengths = { tools: 105, task: 21, answer: 24 };

const vocabulary = 1024;

export async function quickstartModel(): Promise<RandomModel> {
  const { model } = await readSpecFile(join(repository, 'presets/quickstart.yaml'));
  const { architecture, initializer_range } = model;
  if (!architecture) throw new Error('the quickstart draws its weights');
  return { architecture, initializer_range, seed: 1 };
}

/** Token ids that depend only on kind and index. */
export function tokensOf(kind: number, index: number, length: number): number[] {
  return Array.from({ length }, (_, i) => (kind * 331 + index * 97 + i * 61 + ((i * i) % 29)) % vocabulary);
}

/** Prompt of a group: the app's tool list, which half of all groups share, and the group's task. */
export function promptOf(slot: number, step = 0): number[] {
  return [
    ...tokensOf(0, slot % 2, promptLengths.tools),
    ...tokensOf(1, slot + step * 32, promptLengths.task),
  ];
}
