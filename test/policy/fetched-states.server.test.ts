// A node that uses all states of a run, as a sweep does, keeps only a few of the states it fetched.
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { statesKept } from '../../src/policy/state-folder.js';
import { type NativePolicyHolder, nativePolicyHolder } from '../../src/policy/native-state-keeper.js';
import { readState } from '../../src/store/runs/run-records.js';
import { saveState, uploadCheckpoint } from '../../src/activities/step/save-state.js';
import { run } from '../activities/fixture.js';
import { harness, useSharedHarness } from '../activities/own-harness.js';
import { scratchFolder } from '../support/scratch-folder.js';

/** Number of supervised steps; each has another state. */
const last = 6;

useSharedHarness();
const scratch = scratchFolder();
beforeAll(async () => {
  const [phase] = harness.spec['warm_start'] as object[];
  await harness.open({ ...harness.spec, warm_start: [{ ...phase, updates: last }] });
  for (let step = 1; step <= last; step++) {
    await harness.advance(step);
    await harness.attempt('save', () => saveState(harness.node, { run, step, owner: 1 }));
    await harness.attempt('upload', () => uploadCheckpoint(harness.node, { run, step, owner: 1 }));
  }
});

let folder: string;
let said: string[];
let holder: NativePolicyHolder;
beforeEach(async () => {
  folder = mkdtempSync(join(scratch, 'node-'));
  said = [];
  const { store, engine } = harness;
  holder = nativePolicyHolder({
    ...{ store, engine, folder },
    log: (line) => said.push(line),
  });
  await engine.restart();
});
afterEach(() => rmSync(folder, { recursive: true }));

const files = (): string[] =>
  readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.safetensors'));

test('a node keeps only a few of the states it fetched, in whatever order they were needed', async () => {
  const steps = Array.from({ length: last }, (_, index) => last - index);
  for (const step of [...steps, ...steps.reverse()]) {
    await holder.withState(run, step, 'visitor', () => Promise.resolve());
    expect((await harness.engine.held())?.state).toBe(await readState(harness.store, run, step));
    expect(files().length).toBeLessThanOrEqual(statesKept);
    expect(files().some((name) => name.includes(`${String(step).padStart(6, '0')}.`))).toBe(true);
  }
});

test('a node reuses the states it fetched last, and keeps the states it saved itself', async () => {
  await holder.withState(run, 5, 'visitor', async (state) => {
    await holder.keeper.states.prepare(run);
    await harness.engine.saveState(state, holder.keeper.states.path(run, { step: 5, state }));
  });
  for (const step of [1, 2, 3, 4]) await holder.withState(run, step, 'visitor', () => Promise.resolve());
  expect((await holder.keeper.states.list(run)).map(({ step }) => step)).toEqual([5]);
  await harness.engine.restart();
  rmSync(join(harness.folder, 'store', 'checkpoints'), { recursive: true });
  await holder.withState(run, 4, 'visitor', () => Promise.resolve());
  await holder.withState(run, 5, 'visitor', () => Promise.resolve());
  expect(said.slice(-2).map((line) => line.replace(/^.*: /, ''))).toEqual([
    'its saved state',
    'its saved state',
  ]);
});
