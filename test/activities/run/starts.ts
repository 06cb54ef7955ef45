// Starts of the harness's run, and what a refused one says and leaves.
import { expect } from 'vitest';
import { runKey } from '../../../src/store/record-keys.js';
import { run } from '../fixture.js';
import { harness } from '../own-harness.js';

export type Changes = Record<string, unknown>;
export const part = (name: string): Changes => harness.spec[name] as Changes;

/** Chains of executions after the first. */
export const [second, third] = [
  '22222222-0000-0000-0000-000000000000',
  '33333333-0000-0000-0000-000000000000',
];

export async function messageOf(spec: unknown, chain?: string): Promise<string> {
  const error = await harness.open(spec, chain).then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  expect(error).toMatchObject({ name: 'InvalidSpec' });
  return (error as Error).message;
}

/** A refused start may leave assets and data, which are named by their content, but it leaves no run. */
export async function noRunIsLeft(): Promise<void> {
  expect(await harness.store.get(runKey(run))).toBeNull();
}
