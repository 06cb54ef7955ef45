// A run that cannot continue tries another node, then blocks: it says why, and continues after a person's resume (R19, R25, R27).
import { ApplicationFailure } from '@temporalio/common';
import { describe, expect, it, vi } from 'vitest';
import { withFailures } from '../../../src/activities/attempt/failure-mapping.js';
import { maxSameFailures } from '../../../src/activities/attempt/repeated-failures.js';
import { EngineError } from '../../../src/engine/policy-engine.js';
import { grantedSignal, resumeUpdate, revokedSignal, statusQuery } from '../../../src/workflows/messages.js';
import {
  gate,
  type ScriptedRun,
  uniqueName,
  uniqueScript,
  until,
  untilItWaitsFor,
  useTemporal,
  withRun,
  withWorkers,
} from '../scripted-run.js';

describe('trainingRun, if it cannot continue', () => {
  const temporal = useTemporal();

  it('is blocked by a failure that no retry fixes, gives reason and remedy, and tries again on resume', async () => {
    const script = uniqueScript('blocked');
    let broken = true;
    script.before = (call) => {
      if (call === 'collect 3' && broken) {
        throw ApplicationFailure.nonRetryable(
          'http://env answers nothing for 1 h',
          'EnvironmentsUnavailable',
        );
      }
    };
    await withRun(temporal, script, async (run) => {
      const status = await until(run, ({ phase }) => phase === 'blocked');
      expect(status.blocked?.reason).toContain('answers nothing for 1 h');
      expect(status.blocked?.remedy).toContain(`longhaul resume ${script.outline.run}`);
      broken = false;
      await run.executeUpdate(resumeUpdate);
      const result = await run.result();
      expect(result.step).toBe(6);
      expect((await run.query(statusQuery)).blocked).toBeNull();
    });
  });

  it('is blocked if an activity fails five times in the same way, and has all attempts again after resume', async () => {
    const script = uniqueScript('no-progress');
    const { openRun, updatePolicy } = script.activities;
    const tries = { open: 0, update: 0 };
    let broken = true;
    script.activities.openRun = withFailures((input) => {
      tries.open += 1;
      if (tries.open <= maxSameFailures) throw new TypeError('the tokenizer has no merges');
      return openRun(input);
    });
    script.activities.updatePolicy = withFailures((input) => {
      if (input.step !== 3) return updatePolicy(input);
      tries.update += 1;
      if (broken) throw new RangeError('900 tokens do not fit into 448');
      return updatePolicy(input);
    });
    await withRun(temporal, script, async (run) => {
      const opening = await until(run, ({ phase }) => phase === 'blocked');
      expect(opening.blocked?.reason).toBe(
        'open failed 5 times in the same way: the tokenizer has no merges',
      );
      await run.executeUpdate(resumeUpdate);
      for (const tried of [maxSameFailures, 2 * maxSameFailures]) {
        const { blocked } = await until(run, ({ phase }) => phase === 'blocked' && tries.update === tried);
        expect(blocked?.reason).toBe(
          'step-000003/update failed 5 times in the same way: 900 tokens do not fit into 448',
        );
        expect(blocked?.remedy).toContain(`longhaul resume ${script.outline.run}`);
        broken = tried === maxSameFailures;
        await run.executeUpdate(resumeUpdate);
      }
      expect((await run.result()).step).toBe(6);
    });
    expect(tries).toEqual({ open: maxSameFailures + 1, update: 2 * maxSameFailures + 1 });
  });

  it('repeats work that keeps failing, shows this at once, and continues when the work succeeds', async () => {
    const script = uniqueScript('passes', { block_after_s: 60 });
    const { updatePolicy } = script.activities;
    let tries = 0;
    // Two rounds of five attempts, as if an engine were killed again and again.
    script.activities.updatePolicy = withFailures((input) => {
      if (input.step === 3 && ++tries <= 2 * maxSameFailures)
        throw new EngineError('EngineExited', `try ${tries}`);
      return updatePolicy(input);
    });
    await withRun(temporal, script, async (run) => {
      const shown = await until(run, ({ failing }) => failing !== undefined);
      expect(shown).toMatchObject({ phase: 'updating', blocked: null });
      expect(shown.failing?.reason).toMatch(
        /^step-000003\/update failed 5 times in the same way: try (5|10)$/,
      );
      expect(shown.failing?.remedy).toMatch(/blocked if it still fails at .* UTC.*longhaul resume /);
      await vi.waitFor(
        async () => expect((await run.describe()).searchAttributes['Phase']).toEqual(['failing']),
        { timeout: 120_000 },
      );
      expect((await run.result()).step).toBe(6);
      expect(await run.query(statusQuery)).not.toHaveProperty('failing');
      expect((await run.describe()).searchAttributes['Phase']).toEqual(['completed']);
    });
    expect(tries).toBe(2 * maxSameFailures + 1);
  });

  it('is blocked by repeated failures only after block_after_s, and tries at once on resume', async () => {
    const script = uniqueScript('lasts', { block_after_s: 4 });
    const { updatePolicy } = script.activities;
    let broken = true;
    script.activities.updatePolicy = withFailures((input) => {
      if (input.step === 3 && broken) throw new RangeError('900 tokens do not fit into 448');
      return updatePolicy(input);
    });
    await withRun(temporal, script, async (run) => {
      await until(run, ({ failing }) => failing !== undefined);
      const since = Date.now();
      const { blocked, failing } = await until(run, ({ phase }) => phase === 'blocked');
      expect(Date.now() - since).toBeGreaterThan(3_000);
      expect(failing).toBeUndefined();
      expect(blocked?.reason).toContain('900 tokens do not fit');
      await run.executeUpdate(resumeUpdate);
      await until(run, (status) => status.failing !== undefined);
      broken = false;
      await run.executeUpdate(resumeUpdate);
      expect((await run.result()).step).toBe(6);
    });
  });

  it.each([
    ['0', { block_after_s: 0 }],
    ['600', { block_after_s: 600 }],
  ])(
    'with block_after_s %s, moves work that keeps failing to another node, if there is one',
    async (_, more) => {
      const script = uniqueScript('moves', more);
      const other: ScriptedRun = {
        ...script,
        node: uniqueName('node'),
        activities: { ...script.activities },
      };
      const { collectRollouts } = script.activities;
      script.activities.collectRollouts = withFailures((input) => {
        if (input.step === 4) throw new EngineError('EngineExited', 'killed');
        return collectRollouts(input);
      });
      const done: number[] = [];
      other.activities.collectRollouts = (input) => {
        done.push(input.step);
        return collectRollouts(input);
      };
      script.grant = ({ besides }) => (besides.includes(script.node) ? other.node : script.node);
      await withWorkers(temporal, other, () =>
        withRun(temporal, script, async (run) => {
          expect((await run.result()).step).toBe(6);
        }),
      );
      expect(done).toEqual([4, 5, 6]);
    },
  );

  it('with block_after_s 0, is blocked at once if the other node fails too', async () => {
    const script = uniqueScript('fails-on-both', { block_after_s: 0 });
    const other: ScriptedRun = { ...script, node: uniqueName('node'), activities: { ...script.activities } };
    const { collectRollouts } = script.activities;
    const tries: string[] = [];
    for (const { activities, node } of [script, other])
      activities.collectRollouts = withFailures((input) => {
        if (input.step !== 4) return collectRollouts(input);
        tries.push(node);
        throw new EngineError('EngineExited', 'killed');
      });
    script.grant = ({ besides }) => (besides.includes(script.node) ? other.node : script.node);
    await withWorkers(temporal, other, () =>
      withRun(temporal, script, async (run) => {
        const { blocked } = await until(run, ({ phase }) => phase === 'blocked');
        expect(blocked?.reason).toContain('failed 5 times in the same way');
        await run.terminate();
      }),
    );
    expect(tries).toEqual(
      [script.node, other.node].flatMap((node) => Array.from({ length: maxSameFailures }, () => node)),
    );
  });

  it('asks a person after three steps in a row that changed nothing', async () => {
    const script = uniqueScript('unapplied');
    const { updatePolicy } = script.activities;
    script.activities.updatePolicy = async (input) => ({
      ...(await updatePolicy(input)),
      ...(input.step >= 2 && input.step <= 4 ? { applied: false, reason: 'non_finite' } : {}),
    });
    await withRun(temporal, script, async (run) => {
      const status = await until(run, ({ phase }) => phase === 'blocked');
      expect(status.blocked?.reason).toContain('non_finite');
      expect(status.step).toBe(4);
      await run.executeUpdate(resumeUpdate);
      expect((await run.result()).step).toBe(6);
    });
  });

  it('asks a person after two GRPO steps in a row with too few grades, and quotes the reason of the last step', async () => {
    const script = uniqueScript('ungraded');
    const { updatePolicy } = script.activities;
    script.activities.updatePolicy = async (input) => ({
      ...(await updatePolicy(input)),
      ...([3, 5, 6].includes(input.step) ? { ungraded: `step ${input.step}: gym cannot grade` } : {}),
    });
    await withRun(temporal, script, async (run) => {
      const status = await until(run, ({ phase }) => phase === 'blocked');
      expect(status.step).toBe(6);
      expect(status.blocked?.reason).toBe(
        '2 steps in a row had too few grades. The last step: step 6: gym cannot grade',
      );
      expect(status.blocked?.remedy).toContain('Fix the environment');
      await run.executeUpdate(resumeUpdate);
      expect((await run.result()).step).toBe(6);
    });
  });

  it('is blocked by an evaluation without a grade, and repeats it after resume', async () => {
    const script = uniqueScript('ungraded');
    const { evaluateState } = script.activities;
    let tries = 0;
    script.activities.evaluateState = (input) => {
      if (input.step !== 4 || ++tries > 1) return evaluateState(input);
      throw ApplicationFailure.nonRetryable('gym: grade: it cannot', 'NothingGraded');
    };
    await withRun(temporal, script, async (run) => {
      const { blocked } = await until(run, ({ phase }) => phase === 'blocked');
      expect(blocked).toMatchObject({ reason: 'gym: grade: it cannot' });
      expect(blocked?.remedy).toMatch(/^Fix the environment .* longhaul resume /);
      await run.executeUpdate(resumeUpdate);
      expect((await run.result()).step).toBe(6);
    });
    expect(tries).toBe(2);
  });

  it.each([
    ['continues if the other node agrees with the record', false, 'completed'],
    ['is blocked if the other node disagrees as well', true, 'blocked'],
  ])('tries a divergence once on another node, and %s', async (_, bothDisagree, phase) => {
    const script = uniqueScript('diverged');
    const other: ScriptedRun = { ...script, node: uniqueName('node'), activities: { ...script.activities } };
    const { collectRollouts } = script.activities;
    const tried: string[] = [];
    const collectOn =
      (node: string, disagrees: boolean): typeof collectRollouts =>
      (input) => {
        if (input.step !== 4) return collectRollouts(input);
        tried.push(node);
        if (!disagrees) return collectRollouts(input);
        throw ApplicationFailure.nonRetryable('step 3 was recomputed as another state', 'Diverged');
      };
    script.activities.collectRollouts = collectOn('first', true);
    other.activities.collectRollouts = collectOn('other', bothDisagree);
    script.grant = ({ besides }) => (besides.includes(script.node) ? other.node : script.node);
    await withWorkers(temporal, other, () =>
      withRun(temporal, script, async (run) => {
        const status = await until(run, (found) => found.phase === phase);
        expect(tried).toEqual(['first', 'other']);
        expect(status.node).toBe(phase === 'blocked' ? other.node : null);
        await run.terminate().catch(() => undefined);
      }),
    );
  });

  it('moves to another node only once if parallel parts of a step all disagree with the records', async () => {
    const script = uniqueScript('diverged-both');
    const other: ScriptedRun = { ...script, node: uniqueName('node'), activities: { ...script.activities } };
    const disagree = (): never => {
      throw ApplicationFailure.nonRetryable('step 4 was recomputed as another state', 'Diverged');
    };
    const { collectRollouts, evaluateState, updatePolicy } = script.activities;
    const updated: string[] = [];
    other.activities.updatePolicy = (input) => {
      updated.push(other.node);
      return updatePolicy(input);
    };
    const [evaluating, moving] = [gate(), gate()];
    script.activities.collectRollouts = (input) => (input.step === 5 ? disagree() : collectRollouts(input));
    script.activities.evaluateState = async (input) => {
      if (input.step !== 4) return evaluateState(input);
      await evaluating.wait();
      return disagree();
    };
    let moves = 0;
    script.grant = async ({ besides }) => {
      if (besides.length === 0) return script.node;
      moves += 1;
      await moving.wait();
      return other.node;
    };
    await withWorkers(temporal, other, () =>
      withRun(temporal, script, async (run) => {
        await Promise.all([evaluating.reached, moving.reached]);
        evaluating.release();
        await untilItWaitsFor(run, ['place/elsewhere']);
        moving.release();
        expect(await run.result()).toMatchObject({ ended: 'completed', step: 6 });
        expect(updated.at(-1)).toBe(other.node);
      }),
    );
    expect(moves).toBe(1);
  });

  it('shows the search for a node only while it lasts, and reports the interruption to the next activity', async () => {
    const script = uniqueScript('nodes');
    const told: string[] = [];
    const { collectRollouts, updatePolicy } = script.activities;
    script.activities.collectRollouts = (input) => {
      for (const { what } of input.interruptions ?? []) told.push(`collect ${input.step} ${what}`);
      return collectRollouts(input);
    };
    script.activities.updatePolicy = (input) => {
      for (const { what } of input.interruptions ?? []) told.push(`update ${input.step} ${what}`);
      return updatePolicy(input);
    };
    const held = gate();
    script.before = (call) => (call === 'collect 4' ? held.wait() : undefined);
    const leases: string[] = [];
    script.grant = ({ lease }) => {
      leases.push(lease);
      return leases.length === 2 ? null : script.node;
    };
    const planned = gate();
    const { planStep } = script.activities;
    script.activities.planStep = async (input) => {
      if (input.step === 4) await planned.wait();
      return planStep(input);
    };
    await withRun(temporal, script, async (run) => {
      await planned.reached;
      const { node } = script;
      await run.signal(revokedSignal, { lease: leases[0] ?? '', node, reason: 'lost' });
      planned.release();
      const waiting = await until(run, ({ phase }) => phase === 'placing');
      expect(waiting).toMatchObject({ step: 3, node: null, waitsFor: 'no node is alive' });
      await run.signal(grantedSignal, { lease: leases[1] ?? '', node });
      await held.reached;
      expect(await run.query(statusQuery)).toMatchObject({ phase: 'collecting', node, waitsFor: null });
      held.release();
      await run.result();
    });
    expect(told.filter((one) => !one.endsWith('waited'))).toEqual(['collect 4 node_lost']);
  });

  it('returns to its former phase when a person has fixed two blocked parts', async () => {
    const script = uniqueScript('blocked-twice');
    let broken = true;
    const held = { collect: gate(), evaluate: gate() };
    script.before = (call) => {
      const part = { 'collect 5': held.collect, 'evaluate interval 4': held.evaluate }[call];
      if (!part) return;
      if (!broken) return part.wait();
      throw ApplicationFailure.nonRetryable(`${call}: no server answers`, 'EnvironmentsUnavailable');
    };
    await withRun(temporal, script, async (run) => {
      await until(run, ({ phase }) => phase === 'blocked');
      await untilItWaitsFor(run, []);
      broken = false;
      await run.executeUpdate(resumeUpdate);
      await Promise.all([held.collect.reached, held.evaluate.reached]);
      expect(await run.query(statusQuery)).toMatchObject({ phase: 'collecting', blocked: null });
      const { searchAttributes } = await run.describe();
      expect(searchAttributes['Phase']).toEqual(['grpo']);
      held.collect.release();
      held.evaluate.release();
      await run.result();
    });
  });
});
