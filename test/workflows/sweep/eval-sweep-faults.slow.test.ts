// A sweep that is killed, and whose engines and nodes fail, still evaluates each state on each suite once and gets the same results.
import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { ApplicationFailure } from '@temporalio/activity';
import { createNodeActivities } from '../../../src/activities/node-activities.js';
import type { EnvironmentServer } from '../../../examples/apps/server/environment-server.js';
import { EngineExited } from '../../../src/engine/policy-engine.js';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import { type Harness, run, startHarness } from '../../activities/fixture.js';
import { seededRandom } from '../../chaos/random.js';
import { until } from '../../support/until.js';
import { SweepStage, sweepSpec, trained, tableOf, useSweeps } from './sweep-stage.js';

const last = 2;
describe('a sweep', () => {
  let harness: Harness;
  let stage: SweepStage;
  let environments: EnvironmentServer;
  useSweeps(last, (opened, served) => {
    stage = opened;
    environments = served;
    ({ harness } = opened);
  });

  it('that is killed ten times plays every episode once, and makes the same table', async () => {
    let turns = 0;
    // One turn at a time: otherwise all episodes would be played between two kills.
    let line: Promise<unknown> = Promise.resolve();
    for (const deps of [harness.node, harness.secondNode()]) {
      const { engine } = deps.holder;
      const { generate } = engine;
      engine.generate = async (request, signal) => {
        await (line = line.then(() => delay(100)));
        turns += 1;
        return generate.call(engine, request, signal);
      };
      await stage.node(deps);
    }
    const random = seededRandom(7);
    const killed = sweepSpec('killed');
    const episodes = async (): Promise<number> => {
      let found = 0;
      for await (const { key } of harness.store.list('evals/')) found += Number(key.includes('/episodes/'));
      return found;
    };
    let met = 0;
    const played: number[] = [];
    for (let kill = 0; kill < 10; kill++) {
      const handle = await stage.start('killed', killed);
      let over = false;
      void handle.result().then(
        () => (over = true),
        () => (over = true),
      );
      // Kills after some turns, not by time: on a busy machine, the process would be killed before it has begun.
      const reached = turns + 1 + random.below(2);
      await until(() => over || turns >= reached, 'some turns to be sampled');
      await delay(random.below(100));
      await handle.terminate('a test').then(
        () => (met += 1),
        () => undefined,
      );
      played.push(await episodes());
    }
    expect(met).toBeGreaterThan(3);
    // Some kills came in the middle of the work.
    expect(new Set(played).size).toBeGreaterThan(1);
    const result = await (await stage.start('killed', killed)).result();
    expect(result).toMatchObject({ ended: 'completed', pairs: 4, failed: [] });
    const { violations } = await auditRun(harness.store, run);
    expect(violations).toEqual([]);
    const table = await tableOf(harness, 'killed');
    await stage.close();
    const other = await startHarness(environments);
    let calm: SweepStage | null = null;
    try {
      await trained(other, last, [1, 2]);
      calm = await SweepStage.open(stage.temporal, other);
      await calm.node(other.node);
      await (await calm.start('calm', sweepSpec('calm'))).result();
      expect(await tableOf(other, 'calm')).toEqual(table);
    } finally {
      await calm?.close();
      await other.close();
    }
  });

  it('survives an engine that keeps dying for a while', async () => {
    const { engine } = harness.node.holder;
    const { generate } = engine;
    const diesUntil = Date.now() + 12_000;
    let deaths = 0;
    engine.generate = (...args) => {
      if (Date.now() > diesUntil) return generate(...args);
      deaths += 1;
      return Promise.reject(new EngineExited('it was killed', 1, 0));
    };
    await stage.node(harness.node);
    const result = await (await stage.start('dying', sweepSpec('dying', { parallel: 1 }))).result();
    expect(result).toMatchObject({ ended: 'completed', pairs: 4, failed: [] });
    expect(deaths).toBeGreaterThan(5);
  });

  it('drops a late answer of a lost node, and takes the answer of the node that has the pair now', async () => {
    const [silent, other] = [harness.secondNode(), harness.secondNode()];
    let [begun, answered] = [false, false];
    let answer = (): void => undefined;
    const asked = new Promise<void>((resolve) => (answer = resolve));
    await stage.node(silent, {
      evaluatePair: async () => {
        begun = true;
        await asked;
        answered = true;
        throw ApplicationFailure.nonRetryable('an answer that comes late');
      },
    });
    const late = sweepSpec('late', {
      checkpoints: [{ run, steps: [2] }],
      suites: [{ name: 'final' }],
      parallel: 1,
    });
    const handle = await stage.start('late', late);
    await until(() => begun, 'the first node to begin');
    await stage.fallsSilent(silent);
    const evaluate = createNodeActivities(other).evaluatePair;
    await stage.node(other, {
      evaluatePair: async (input) => {
        answer();
        await until(() => answered, 'the late answer');
        // The workflow notices the loss within the next seconds; this node's answer comes after that.
        await until(async () => {
          const { pendingActivities } = (await handle.describe()).raw;
          return pendingActivities?.length === 1;
        }, 'the server to know the late answer');
        await delay(1_000);
        return evaluate(input);
      },
    });
    expect(await handle.result()).toMatchObject({ ended: 'completed', episodes: 3, failed: [] });
  });
});
