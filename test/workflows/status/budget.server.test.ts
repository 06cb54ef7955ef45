// A run with a budget: it warns, ends at the step boundary when a limit is spent, and continues when the limit is raised.
import { describe, expect, it } from 'vitest';
import type { OpenedRun } from '../../../src/activities/contracts.js';
import { limitsOf } from '../../../src/spec/budget.js';
import type { BudgetSpec } from '../../../src/spec/run-spec.js';
import { budgetNotes, servedNote } from '../../../src/workflows/status/budget.js';
import { statusQuery } from '../../../src/workflows/messages.js';
import {
  type ScriptedRun,
  startRun,
  uniqueScript,
  useTemporal,
  withRun,
  withWorkers,
} from '../scripted-run.js';

describe('a run with a budget', () => {
  const temporal = useTemporal();

  /** Counts the recorded steps, as openRun does. */
  function limited(script: ScriptedRun, budget: BudgetSpec, startedAt = Date.now()): void {
    script.budget = (): Pick<OpenedRun, 'budget'> => {
      const steps = Math.max(0, script.committed.size - 1);
      const spent = { tokens: 100 * steps, gpu_seconds: 3600 * steps };
      const { usd_per_million } = budget;
      return {
        budget: {
          ...{ limits: limitsOf(budget), spent, startedAt: new Date(startedAt).toISOString() },
          ...(usd_per_million ? { usd_per_million } : {}),
        },
      };
    };
  }

  it.each<[string, BudgetSpec, number, string]>([
    ['tokens', { max_tokens: 300 }, 3, 'budget.max_tokens is spent (300 of 300)'],
    ['GPU hours', { max_gpu_hours: 2.5 }, 3, 'budget.max_gpu_hours is spent (3 of 2.5)'],
    ['money', { max_usd: 7, usd_per_gpu_hour: 3.5, max_tokens: 1e6 }, 2, 'budget.max_usd is spent (7 of 7)'],
  ])('ends at the step boundary after %s are spent, with its state saved and evaluated', async (...given) => {
    const [, budget, last, reason] = given;
    const script = uniqueScript('budget', { ckpt_interval: 100 });
    limited(script, budget);
    await withRun(temporal, script, async (run) => {
      const end = `${reason}: raise it and start the run again`;
      expect(await run.result()).toMatchObject({ ended: 'stopped', step: last, budget: end });
      const { budget: lines = [] } = await run.query(statusQuery);
      expect(budgetNotes(lines)).toEqual([end]);
    });
    expect(script.uploaded).toEqual([last]);
    expect(script.calls).toContain(`evaluate final ${last}`);
    expect(script.calls).not.toContain(`plan ${last + 1}`);
  });

  it('ends at the step boundary after the tokens sent to a Tinker server have cost max_usd', async () => {
    const script = uniqueScript('served', { ckpt_interval: 100 });
    script.served = { train: 200_000, prefill: 1_000_000, sample: 50_000, saves: 2 };
    const usd_per_million = { train: 3, prefill: 1, sample: 8 };
    limited(script, { max_usd: 5.9, usd_per_million });
    await withRun(temporal, script, async (run) => {
      const end = 'budget.max_usd is spent (6 of 5.9): raise it and start the run again';
      expect(await run.result()).toMatchObject({ ended: 'stopped', step: 3, budget: end });
      const { served = [] } = await run.query(statusQuery);
      expect(served).toMatchObject([
        { kind: 'train', number: 600_000, usd: 1.8 },
        { kind: 'prefill', number: 3_000_000, usd: 3 },
        { kind: 'sample', number: 150_000, usd: 1.2 },
        { kind: 'saves', number: 6 },
      ]);
      expect(servedNote(served)).toBe(
        'train 600,000 tokens ($1.8) · prefill 3,000,000 tokens ($3) · sample 150,000 tokens ($1.2) · saves 6',
      );
    });
    expect(script.calls).not.toContain('plan 4');
  });

  it('ends when its time is over, and takes no step', async () => {
    const script = uniqueScript('wall');
    limited(script, { max_wall_s: 60 }, Date.now() - 61_000);
    await withRun(temporal, script, async (run) => {
      expect(await run.result()).toMatchObject({ ended: 'stopped', step: 0 });
    });
    expect(script.calls).not.toContain('plan 1');
  });

  it('ends again at once until a limit is raised, then continues', async () => {
    const script = uniqueScript('raised');
    await withWorkers(temporal, script, async (queue) => {
      const steps: number[] = [];
      for (const max_tokens of [200, 200, 450, 10_000]) {
        limited(script, { max_tokens });
        const run = await startRun(temporal, queue, script.outline.name);
        steps.push((await run.result()).step);
      }
      expect(steps).toEqual([2, 2, 5, 6]);
    });
    expect(script.calls.filter((call) => call.startsWith('update '))).toHaveLength(6);
  });

  it('completes if its last step spends the budget', async () => {
    const script = uniqueScript('enough');
    limited(script, { max_tokens: 600 });
    await withRun(temporal, script, async (run) => {
      expect(await run.result()).toMatchObject({ ended: 'completed', step: 6, budget: null });
    });
  });
});

describe('the notes on a budget', () => {
  it('begin at 80 % of a limit', () => {
    const line = (spent: number) => budgetNotes([{ name: 'max_tokens', limit: 10_000, spent }]);
    expect(line(7_999)).toEqual([]);
    expect(line(8_000)).toEqual(['budget.max_tokens: 80 % is spent (8,000 of 10,000)']);
    expect(line(9_999)).toEqual(['budget.max_tokens: 99 % is spent (9,999 of 10,000)']);
    expect(line(10_000)).toHaveLength(1);
  });
});
