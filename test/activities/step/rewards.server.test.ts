// Rewards may be any finite number, because other people's servers decide them. Pass rates are shares of passes (reward ≥ 1).
import fc from 'fast-check';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import { evaluateState } from '../../../src/activities/evaluation/evaluate-state.js';
import { summarise } from '../../../src/activities/evaluation/suite-evaluation.js';
import type { SuiteRecord } from '../../../src/spec/records/evaluation-records.js';
import type { EpisodeRecord, Outcome } from '../../../src/spec/records/episode.js';
import { episodeKey } from '../../../src/store/record-keys.js';
import { encodeRecord } from '../../../src/store/records/record-codec.js';
import { requireRecord } from '../../../src/store/records/records.js';
import { showRecord } from '../../../src/cli/inspect/show-command.js';
import { readPlan, readUpdate } from '../../../src/store/runs/run-records.js';
import { type ForeignServer, startForeignServer } from '../../environments/foreign-server.js';
import { lastSftStep, run } from '../fixture.js';
import { harness, useHarness } from '../own-harness.js';

const finite = fc.double({ noNaN: true, noDefaultInfinity: true, min: -1e100, max: 1e100 });
const reward = fc.oneof(fc.constantFrom(0, 1, -0, 0.5, -20, 1.5, 5e-324, 1e100, -1e100), finite);

describe('an evaluation with any rewards', () => {
  const digest = 'd'.repeat(64);
  const suite = {
    name: 'final',
    tasks: [0, 1, 2].map((n) => ({ task_key: `t${n}`, env_key: 'e', template: `e/${n % 2}`, seed: n })),
  } as Partial<SuiteRecord> as SuiteRecord;
  const episodeOf = (slot: number, outcome: Outcome): EpisodeRecord =>
    ({
      ...{ slot, env_key: slot === 2 ? 'other' : 'e', outcome },
      metrics: { turns: 2, tool_calls: 1, tool_errors: 0 },
    }) as Partial<EpisodeRecord> as EpisodeRecord;
  const outcome: fc.Arbitrary<Outcome> = fc.oneof(
    reward.map((value): Outcome => ({ status: 'graded', value })),
    fc.constant<Outcome>({ status: 'unknown', reason: 'call', failures: 3 }),
  );

  it('gives a valid record, with pass@1 as the share of passes among graded episodes', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(fc.nat(2), outcome), { minLength: 1, maxLength: 12 }),
        async (rollouts) => {
          const result = summarise(
            rollouts.map(([slot, value]) => episodeOf(slot, value)),
            suite,
            digest,
            digest,
          );
          const graded = rollouts.flatMap(([, value]) => (value.status === 'graded' ? [value.value] : []));
          const passed = graded.filter((value) => value >= 1).length;
          expect(result.graded).toBe(graded.length);
          expect(result.unknown).toBe(rollouts.length - graded.length);
          expect(result.pass_at_1).toBe(graded.length === 0 ? null : passed / graded.length);
          const templates = Object.values(result.templates);
          expect(templates.reduce((sum, part) => sum + part.passed, 0)).toBe(passed);
          expect(templates.reduce((sum, part) => sum + part.graded, 0)).toBe(graded.length);
          await encodeRecord('evaluation', {
            ...result,
            observed: { run, step: 1, seconds: 1, committed_at: new Date(0).toISOString(), metrics: {} },
          });
        },
      ),
      { numRuns: 200 },
    );
  });

  it('counts unknown outcomes but never scores them: 1 pass, 1 failure and 2 unknown give 50 %', () => {
    const unknown: Outcome = { status: 'unknown', reason: 'call', failures: 3 };
    const result = summarise(
      [
        episodeOf(0, { status: 'graded', value: 1 }),
        episodeOf(1, { status: 'graded', value: 0 }),
        episodeOf(2, unknown),
        episodeOf(0, unknown),
      ],
      suite,
      digest,
      digest,
    );
    expect(result).toMatchObject({
      pass_at_1: 0.5,
      graded: 2,
      unknown: 2,
      environments: {
        e: { pass_at_1: 0.5, graded: 2, unknown: 1, mean_turns: 2 },
        other: { pass_at_1: null, graded: 0, unknown: 1, mean_turns: 2 },
      },
      templates: { 'e/0': { passed: 1, graded: 1 }, 'e/1': { passed: 0, graded: 1 } },
    });
  });
});

describe('a run on another person’s server', () => {
  useHarness();
  let foreign: ForeignServer;
  let rewardOf = (_episodeId: string): string => '0';
  beforeAll(async () => {
    foreign = await startForeignServer((episodeId) => rewardOf(episodeId));
  });
  afterAll(() => foreign.close());
  beforeEach(async () => {
    await harness.open({ ...harness.spec, environments: [{ env_key: 'tracker', url: foreign.url }] });
    await harness.advance(lastSftStep);
  });

  const evaluate = (step: number) =>
    harness.attempt('evaluate', () =>
      evaluateState(harness.node, { run, owner: 1, step, suite: 'interval' }),
    );

  it('trains and evaluates with any finite reward, step after step, and its audit finds nothing', async () => {
    const drawn = fc.sample(reward, { numRuns: 16, seed: 20 });
    const steps = [1, 2, 3, 4].map((n) => lastSftStep + n);
    for (const [index, step] of steps.entries()) {
      const rewards = drawn.slice(4 * index, 4 * index + 4);
      rewardOf = (episodeId) => {
        const [slot, sample] = (/(\d+)\.(\d+)\.json\.gz$/.exec(episodeId) ?? []).slice(1).map(Number);
        return String(rewards[2 * (slot ?? 0) + (sample ?? 0)]);
      };
      await harness.advance(step);
      const { identity } = await readUpdate(harness.store, run, step);
      expect(identity.outcomes.flat()).toEqual(rewards.map((value) => value + 0));
      expect(identity.applied).toBe(true);
      const evaluated = await evaluate(step);
      expect(evaluated.graded).toBe(2);
      expect(evaluated.pass_at_1).toBe(
        [rewards[0], rewards[2]].filter((value) => (value ?? 0) >= 1).length / 2,
      );
      if (step === steps.at(-1)) break;
      await harness.plan(step + 1);
      const record = await readPlan(harness.store, { run, step: step + 1 });
      for (const rate of Object.values(record.curriculum.pass_rates)) {
        expect(rate).toBeGreaterThanOrEqual(0);
        expect(rate).toBeLessThanOrEqual(1);
      }
    }
    const audit = await auditRun(harness.store, run);
    expect(audit.violations).toEqual([]);
    expect(audit.evaluations).toBe(steps.length);
  });

  it.each([['1e999'], ['-1e999'], ['1e300'], ['"good"'], ['null']])(
    'a reward of %s is no grade: the outcome is unknown, and the run continues',
    async (text) => {
      rewardOf = (episodeId) => (episodeId.endsWith('00000.000.json.gz') ? text : '1');
      const step = lastSftStep + 1;
      await harness.advance(step);
      const key = episodeKey(run, step, 0, 0);
      const { outcome, observed } = await requireRecord(harness.store, key, 'episode');
      expect(outcome).toEqual({ status: 'unknown', reason: 'grade', failures: 3 });
      expect(observed.failure).toMatch(/gave (the|no|as) reward/);
      expect(await showRecord(harness.store, key)).toContain(`failure     ${observed.failure}`);
      const { identity } = await readUpdate(harness.store, run, step);
      expect(identity.outcomes).toEqual([
        [null, 1],
        [1, 1],
      ]);
    },
  );
});
