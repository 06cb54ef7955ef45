// Impossible forks: each is refused with the problem and a way to continue, and leaves nothing behind.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { forkSpec } from '../../../src/activities/run/fork-run.js';
import { specChecks } from '../../../src/cli/stack/spec-checks.js';
import { run } from '../fixture.js';
import { copy, dyingAfter, harness, last, messageOf, open, scratch, useRunToFork } from './run-to-fork.js';
import { keysOf } from '../../store/overlaid-store.js';

useRunToFork();

describe('a fork is refused, and leaves nothing behind, for:', () => {
  type Part = Record<string, unknown>;
  const refusals: {
    what: string;
    name?: string;
    from?: { run: string; step: number };
    change?: (spec: Record<string, Part>) => void;
    says: RegExp;
  }[] = [
    {
      what: 'a parent that does not exist',
      from: { run: 'nobody', step: 1 },
      says: /fork\.run: there is no run "nobody"/,
    },
    {
      what: 'a step after the parent’s last one',
      from: { run, step: 9 },
      says: /step 9 of unit is not committed; the nearest committed steps are 3, 4, 5$/,
    },
    { what: 'a step before the parent’s first one', from: { run, step: -1 }, says: /fork\.step: / },
    {
      what: 'a rewind to the step at which the run already is',
      name: run,
      from: { run, step: last },
      says: /unit is at step 5: there is nothing to rewind/,
    },
    {
      what: 'the name of a fork that was begun after another step',
      name: 'settled',
      says: /name: run "settled" exists and is a fork of unit after step 1/,
    },
    {
      what: 'a changed model',
      change: ({ model }) => (model!.architecture = { ...(model!.architecture as Part), hidden_size: 64 }),
      says: /model\.architecture\.hidden_size: a fork of unit must keep its parent's value \(stored 32, computed 64\)/,
    },
    {
      what: 'a changed seed',
      change: (spec) => ((spec as Part).seed = 6),
      says: /seed: a fork of unit must keep its parent's value/,
    },
    {
      what: 'a changed tokenizer',
      change: ({ model }) => (model!.tokenizer = otherFile()),
      says: /model\.tokenizer: .*other\.json differs from what run "unit" was started with/,
    },
    { what: 'changed tasks', change: ({ data }) => (data!.tasks = otherFile()), says: /data\.tasks: / },
    {
      what: 'a changed warm start that the parent has already taken',
      change: (spec) => ((spec as unknown as Record<string, Part[]>).warm_start![0]!.lr = 1e-4),
      says: /warm_start\.0\.lr: a fork of unit must keep its parent's value/,
    },
    {
      what: 'a last step before the fork’s first one',
      change: ({ trainer }) => (trainer!.max_training_steps = 1),
      says: /the run ends after step 3, and the fork begins after step 3: .*; raise it: --set max_training_steps=N, where N counts all GRPO steps but not the \d warm-start steps before them/,
    },
  ];
  function otherFile(): string {
    const path = join(scratch, 'other.json');
    writeFileSync(path, '{}');
    return path;
  }

  test.each(refusals)('$what', async ({ name = 'refused', from = { run, step: 3 }, change, says }) => {
    const store = await copy();
    await open(await forkSpec(store, 'settled', { run, step: 1 }), store);
    const spec = { ...structuredClone(await forkSpec(store, name, { run, step: 3 })), fork: from };
    change?.(spec as unknown as Record<string, Part>);
    const before = await keysOf(store);
    expect(await messageOf(open(spec, store))).toMatch(says);
    expect(await keysOf(store)).toEqual(before);
  });

  test('the same reasons by doctor, before a start', async () => {
    const doctor = async (name: string, fork: { run: string; step: number }, change: object = {}) => {
      const spec = { ...(await forkSpec(harness.store, name, { run, step: 3 })), fork, ...change };
      const place = {
        path: 'x',
        store: `dir:${join(harness.folder, 'store')}`,
        stackServer: null,
        start: '',
      };
      const results = await Promise.all(specChecks({ spec, files: null }, place));
      const { ok, detail } = results.find(({ check }) => check === 'run')!;
      return `${ok}: ${detail}`;
    };
    expect(await doctor('new', { run, step: 3 })).toBe(
      'true: new is a new run, which continues unit after step 3',
    );
    expect(await doctor(run, { run, step: 3 })).toMatch(/^true: unit\S+ is a new run, which continues unit/);
    expect(await doctor('new', { run, step: 9 })).toMatch(/^false: [^]*step 9 of unit is not committed/);
    expect(await doctor('new', { run, step: 3 }, { seed: 6 })).toMatch(/^false: [^]*must keep its parent's/);
    await open(await forkSpec(harness.store, 'made', { run, step: 1 }));
    expect(await doctor('made', { run, step: 1 })).toBe('true: made would be continued');
    expect(await doctor('made', { run, step: 1 }, { seed: 6 })).toMatch(/"made" exists with another spec/);
    expect(await doctor('made', { run, step: 2 })).toMatch(/^false: [^]*is a fork of unit after step 1, not/);
  });

  test('the name of an unfinished fork that was begun after another step', async () => {
    const store = await copy();
    await expect(
      open(await forkSpec(store, 'begun', { run, step: 2 }), dyingAfter(store, 1)),
    ).rejects.toThrow('killed');
    expect(await messageOf(open(await forkSpec(store, 'begun', { run, step: 3 }), store))).toMatch(
      /an earlier fork of unit into begun, after step 2, was never finished/,
    );
  });
});
