// A run that cannot go on looks for another node, and then asks a person: it waits, says why, and goes on (R19, R25, R27).
import { ApplicationFailure } from '@temporalio/common';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { withFailures } from '../../src/activities/failure-mapping.js';
import { maxSameFailures } from '../../src/activities/repeated-failures.js';
import { pauseUpdate, resumeUpdate, statusQuery } from '../../src/workflows/messages.js';
import { startTemporal, type TestTemporal } from '../support/temporal-server.js';
import {
  gate,
  outlineOf,
  type ScriptedRun,
  scriptRun,
  startRun,
  uniqueName,
  until,
  untilItWaitsFor,
  withWorkers,
  workflowBundle,
} from './scripted-run.js';

describe('trainingRun, where it cannot go on', { timeout: 60_000 }, () => {
  let temporal: TestTemporal;
  beforeAll(async () => {
    [temporal] = await Promise.all([startTemporal(), workflowBundle()]);
  }, 60_000);
  afterAll(() => temporal?.stop());

  it('is blocked by a failure that no retry mends, says why and how, and tries again on resume', async () => {
    const script = scriptRun(outlineOf(uniqueName('blocked')));
    let broken = true;
    script.before = (call) => {
      if (call === 'collect 3' && broken) {
        throw ApplicationFailure.nonRetryable(
          'http://env answers nothing for 1 h',
          'EnvironmentsUnavailable',
        );
      }
    };
    await withWorkers(temporal, script, async (queue) => {
      const run = await startRun(temporal, queue, script.outline.name);
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

  it('is blocked where an activity fails five times in the same way, and has all its tries again after resume', async () => {
    const script = scriptRun(outlineOf(uniqueName('no-progress')));
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
    await withWorkers(temporal, script, async (queue) => {
      const run = await startRun(temporal, queue, script.outline.name);
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

  it('asks a person after three steps in a row that changed nothing', async () => {
    const script = scriptRun(outlineOf(uniqueName('unapplied')));
    const { updatePolicy } = script.activities;
    script.activities.updatePolicy = async (input) => ({
      ...(await updatePolicy(input)),
      ...(input.step >= 2 && input.step <= 4 ? { applied: false, reason: 'non_finite' } : {}),
    });
    await withWorkers(temporal, script, async (queue) => {
      const run = await startRun(temporal, queue, script.outline.name);
      const status = await until(run, ({ phase }) => phase === 'blocked');
      expect(status.blocked?.reason).toContain('non_finite');
      expect(status.step).toBe(4);
      await run.executeUpdate(resumeUpdate);
      expect((await run.result()).step).toBe(6);
    });
  });

  it.each([
    ['goes on where another node agrees with the record', false, 'completed'],
    ['is blocked where the other one disagrees as well', true, 'blocked'],
  ])('tries a divergence once on another node, and %s', async (_, bothDisagree, phase) => {
    const script = scriptRun(outlineOf(uniqueName('diverged')));
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
    script.activities.findNode = ({ besides }) =>
      Promise.resolve({ node: besides === script.node ? other.node : script.node });
    await withWorkers(temporal, script, (queue) =>
      withWorkers(temporal, other, async () => {
        const run = await startRun(temporal, queue, script.outline.name);
        const status = await until(run, (found) => found.phase === phase);
        expect(tried).toEqual(['first', 'other']);
        expect(status.node).toBe(other.node);
        await run.terminate().catch(() => undefined);
      }),
    );
  });

  it('moves to another node once where all that runs side by side disagrees with the records', async () => {
    const script = scriptRun(outlineOf(uniqueName('diverged-both')));
    const other: ScriptedRun = { ...script, node: uniqueName('node'), activities: { ...script.activities } };
    const disagree = (): never => {
      throw ApplicationFailure.nonRetryable('step 4 was recomputed as another state', 'Diverged');
    };
    const { collectRollouts, evaluateState } = script.activities;
    const [evaluating, moving] = [gate(), gate()];
    script.activities.collectRollouts = (input) => (input.step === 5 ? disagree() : collectRollouts(input));
    script.activities.evaluateState = async (input) => {
      if (input.step !== 4) return evaluateState(input);
      await evaluating.wait();
      return disagree();
    };
    let moves = 0;
    script.activities.findNode = async ({ besides }) => {
      if (besides === undefined) return { node: script.node };
      moves += 1;
      await moving.wait();
      return { node: other.node };
    };
    await withWorkers(temporal, script, (queue) =>
      withWorkers(temporal, other, async () => {
        const run = await startRun(temporal, queue, script.outline.name);
        await Promise.all([evaluating.reached, moving.reached]);
        evaluating.release();
        await untilItWaitsFor(run, ['place/elsewhere']);
        moving.release();
        expect(await run.result()).toMatchObject({ ended: 'completed', step: 6 });
        expect((await run.query(statusQuery)).node).toBe(other.node);
      }),
    );
    expect(moves).toBe(1);
  });

  it('shows that it looks for a node only as long as it does', async () => {
    const script = scriptRun(outlineOf(uniqueName('nodes')));
    const held = gate();
    script.before = (call) => (call === 'collect 4' ? held.wait() : undefined);
    // The search after the pause finds a node with its second question.
    let asked = 0;
    const searching = gate();
    script.activities.findNode = async () => {
      asked += 1;
      if (asked === 2) return null;
      if (asked === 3) await searching.wait();
      return { node: script.node };
    };
    const paused = gate();
    const { planStep } = script.activities;
    script.activities.planStep = async (input) => {
      if (input.step === 3) await paused.wait();
      return planStep(input);
    };
    await withWorkers(temporal, script, async (queue) => {
      const run = await startRun(temporal, queue, script.outline.name);
      await paused.reached;
      await run.executeUpdate(pauseUpdate);
      paused.release();
      await until(run, ({ phase }) => phase === 'paused');
      await run.executeUpdate(resumeUpdate);
      await searching.reached;
      expect(await run.query(statusQuery)).toMatchObject({ phase: 'placing', step: 3 });
      searching.release();
      await held.reached;
      expect(await run.query(statusQuery)).toMatchObject({ phase: 'collecting', step: 3 });
      held.release();
      await run.result();
    });
  });

  it('shows what it was doing again when a person has mended what blocked two of its parts', async () => {
    const script = scriptRun(outlineOf(uniqueName('blocked-twice')));
    let broken = true;
    const held = { collect: gate(), evaluate: gate() };
    script.before = (call) => {
      const part = { 'collect 5': held.collect, 'evaluate interval 4': held.evaluate }[call];
      if (!part) return;
      if (!broken) return part.wait();
      throw ApplicationFailure.nonRetryable(`${call}: no server answers`, 'EnvironmentsUnavailable');
    };
    await withWorkers(temporal, script, async (queue) => {
      const run = await startRun(temporal, queue, script.outline.name);
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

  it('waits while no node is alive, and begins when one reports', async () => {
    const script = scriptRun(outlineOf(uniqueName('nodes')));
    let asked = 0;
    script.activities.findNode = () => Promise.resolve(++asked < 3 ? null : { node: script.node });
    await withWorkers(temporal, script, async (queue) => {
      const run = await startRun(temporal, queue, script.outline.name);
      expect((await run.result()).step).toBe(6);
    });
    expect(asked).toBe(3);
  });
});
