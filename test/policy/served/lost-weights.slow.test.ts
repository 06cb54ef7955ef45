// Cases in which a server's weights could lose a batch, or have it twice, although all records are in order: without the checks, such a run ends with
// other log-probs, and its audit finds nothing.
import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import { TinkerClient } from '../../../src/engine/tinker/futures.js';
import { type AdamParams, TinkerService } from '../../../src/engine/tinker/service.js';
import { savedStatesFolder, sequenceKey } from '../../../src/store/record-keys.js';
import { readUpdate } from '../../../src/store/runs/run-records.js';
import { readInstances, readSavedStates, readTrained } from '../../../src/store/runs/served-models.js';
import { type Harness, reviseRecord, run } from '../../activities/fixture.js';
import {
  collect,
  commitServedBase,
  finalLogprobs,
  furthest,
  lastStep,
  loseModels,
  passOne,
  python,
  type ServedNode,
  type ServedWorld,
  startServedWorld,
  trainOn,
  update,
} from './fixture.js';

describe.skipIf(!python)('weights on a Tinker server', () => {
  let world: ServedWorld;
  let expected: number[];
  beforeAll(async () => {
    world = await startServedWorld();
    const undisturbed = await world.open();
    await trainOn(undisturbed, world.node(undisturbed));
    expected = await finalLogprobs(undisturbed, world.server);
  });
  afterEach(() => world.unloadModels());
  afterAll(() => world?.close());

  async function expectSameEnd(harness: Harness, wanted = expected): Promise<void> {
    expect(furthest(await finalLogprobs(harness, world.server), wanted)).toBeLessThanOrEqual(1e-6);
    expect((await auditRun(harness.store, run)).violations).toEqual([]);
  }

  async function take(harness: Harness, node: ServedNode, steps: number[], attempt = 1): Promise<void> {
    for (const step of steps) {
      const planned = await harness.plan(step);
      await collect(harness, node, planned, attempt);
      await passOne(harness, step);
      await update(harness, node, planned);
    }
  }

  /** Is killed behind its n-th optimizer's step. */
  function dyingBehindUpdate(harness: Harness, count: number): ServedNode {
    let left = count;
    class Dying extends TinkerService {
      override async optimStep(...request: [{ model_id: string; seq_id: number }, AdamParams, ...[]]) {
        if (left === 0) throw new Error('killed');
        const metrics = await super.optimStep(...request);
        if (--left === 0) throw new Error('killed');
        return metrics;
      }
    }
    return world.node(harness, { service: new Dying(new TinkerClient({ url: world.server.url })) });
  }

  test.each([
    ['the same node', 'node-a', 2],
    ['another node', 'node-b', 3],
  ])(
    'have each batch once where a worker died that applied logged batches again, and %s goes on',
    async (_, name, models) => {
      const harness = await world.open({}, { save_every: lastStep });
      const node = world.node(harness);
      await commitServedBase(harness, node);
      await take(harness, node, [1, 2, 3]);
      await loseModels(harness, world.server);
      const planned = await harness.plan(4);
      const dying = dyingBehindUpdate(harness, 2);
      await expect(collect(harness, dying, planned)).rejects.toThrow('not loaded');
      // It has applied batch 1, and batch 2 without knowing it.
      await expect(collect(harness, dying, planned, 2)).rejects.toThrow('killed');
      const next = world.node(harness, { name });
      await collect(harness, next, planned, 3);
      await passOne(harness, 4);
      await update(harness, next, planned);
      expect(await readTrained(harness.store, run)).toHaveLength(models);
      await expectSameEnd(harness);
    },
  );

  test('have each batch once where another node evaluates an older state, and training has a new worker', async () => {
    const harness = await world.open();
    const node = world.node(harness);
    await commitServedBase(harness, node);
    await take(harness, node, [1, 2, 3]);
    const other = world.node(harness, { name: 'node-b' });
    expect(await other.holder.withState(run, 1, 'visitor', () => Promise.resolve('sampled'))).toBe('sampled');
    await take(harness, world.node(harness), [4]);
    // The evaluation left the trained model alone.
    const instances = await readInstances(harness.store, run);
    expect(instances.map(({ purpose, node, step, given_up }) => [purpose, node, step, given_up])).toEqual([
      [undefined, 'node-a', 0, undefined],
      ['evaluate', 'node-b', 1, undefined],
      ['evaluate', 'node-b', 1, true],
    ]);
    await expectSameEnd(harness);
  });

  test('have each batch once where the server lost all saved states, and says that it loads them', async () => {
    const harness = await world.open();
    const node = world.node(harness);
    await commitServedBase(harness, node);
    await take(harness, node, [1, 2, 3]);
    await world.server.kill();
    const { checkpoints } = world.server;
    for (const name of readdirSync(checkpoints)) rmSync(join(checkpoints, name), { recursive: true });
    await world.server.restart();
    await expect(collect(harness, node, await harness.plan(4))).rejects.toThrow('not loaded');
    await take(harness, node, [4], 2);
    const newest = (await readTrained(harness.store, run)).at(-1)!.record;
    expect(newest).toMatchObject({ step: 0, path: null });
    expect(newest.passed_over).toHaveLength(3);
    await expectSameEnd(harness);
  });

  test('are not put back by a worker that wakes in an evaluation after another node has trained on', async () => {
    const harness = await world.open();
    const node = world.node(harness);
    await commitServedBase(harness, node);
    await take(harness, node, [1, 2]);
    const other = world.node(harness, { name: 'node-b' });
    const woken = node.holder.withState(run, 2, 'visitor', async (state) => {
      await take(harness, other, [3]);
      const key = { seed: 1, domain: 'eval', step: 0, slot: 0, sample: 0 } as const;
      const request = { state, tokens: [1, 2, 3], key, temperature: 1, max_new_tokens: 2, stop_tokens: [] };
      return node.holder.engine.generate(request);
    });
    await expect(woken).rejects.toThrow('not loaded');
    await take(harness, other, [4]);
    await expectSameEnd(harness);
  });

  test('that lack a step are noticed, even if the step moved them by a tenth of the log-probs’ tolerance and less', async () => {
    const lr = { lr: 1e-4 };
    const undisturbed = await world.open({}, lr);
    await trainOn(undisturbed, world.node(undisturbed));
    const wanted = await finalLogprobs(undisturbed, world.server);
    const harness = await world.open({}, lr);
    const { store } = harness;
    const node = world.node(harness);
    await commitServedBase(harness, node);
    await take(harness, node, [1, 2, 3]);
    const { moved } = (await readUpdate(store, run, 3)).observed.served!.check;
    expect(moved).toBeGreaterThan(0);
    expect(moved).toBeLessThan(0.01);
    const [older] = await readSavedStates(store, run, 2);
    const key = sequenceKey(savedStatesFolder(run, 3), 1);
    await reviseRecord(store, key, 'saved', (saved) => ({ ...saved, path: older!.path }));
    await loseModels(harness, world.server);
    await take(harness, world.node(harness, { name: 'node-b' }), [4]);
    const newest = (await readTrained(store, run)).at(-1)!.record;
    expect(newest).toMatchObject({ step: 2, passed_over: [older!.path] });
    await expectSameEnd(harness, wanted);
  });
});
