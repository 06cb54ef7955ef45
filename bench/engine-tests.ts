// What the engine's own tests find beside what they allow: each ends its output with a line of JSON.
import type { Measured, PartValues } from './figure.js';
import { builtTest } from './native-engine.js';
import { runCommand } from './quickstart.js';

const testDeadlineMs = 20 * 60_000;

/** Logits and gradients against PyTorch and transformers, from the committed fixtures; greatest differences. */
export async function measureParity(): Promise<Measured> {
  return { values: await foundBy('model_parity_test', ['logits', 'gradients']) };
}

/**
 * Log-probs over every way to compute them: batch, chunk, block, threads, instruction set, sharing; decoded, prefilled, scored and
 * trained on.
 */
export async function measureExactness(): Promise<Measured> {
  return { values: await foundBy('model_exactness_test', ['compared', 'differing']) };
}

/** Peak memory of whole updates against the plan that `load` prints; greatest deviation of four ways to train. */
export async function measureMemory(): Promise<Measured> {
  return { values: await foundBy('train_memory_plan_test', ['deviation']) };
}

async function foundBy(test: string, names: readonly string[]): Promise<PartValues> {
  const { code, output } = await runCommand(await builtTest(test), [], testDeadlineMs);
  return readTest(test, code, output, names);
}

/** A test that fails over the very difference it measures still tells how large that was: the figure misses its bar then. */
export function readTest(
  test: string,
  code: number | string,
  output: string,
  names: readonly string[],
): PartValues {
  const lines = output.trim().split('\n');
  const last = lines.at(-1) ?? '';
  const failed = lines.filter((line) => line.startsWith('FAILED'));
  if (!last.startsWith('{') || (code !== 0 && failed.length === 0))
    throw new Error(`${test} ended with ${code} and no figures: ${output.slice(-400).trim()}`);
  const found = JSON.parse(last) as Record<string, unknown>;
  const values: PartValues = { failed: failed.length };
  for (const name of names) {
    const value = found[name];
    if (typeof value !== 'number') throw new Error(`${test} printed no ${name}`);
    values[name] = value;
  }
  return values;
}
