// A worker that dies behind any of its calls, and a model that the server loses, cost time alone (R32 to R37).
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import { TinkerService } from '../../../src/engine/tinker/service.js';
import { readInstances } from '../../../src/store/runs/served-models.js';
import { type Harness, lastSftStep, run } from '../../activities/fixture.js';
import {
  collect,
  commitServedBase,
  DyingClient,
  finalLogprobs,
  furthest,
  lastStep,
  logprobsOf,
  loseModels,
  passOne,
  type ServedNode,
  type ServedWorld,
  startServedWorld,
  trainOn,
  update,
  venv,
} from './fixture.js';

describe.skipIf('skipped' in venv)('a run on a Tinker server', { timeout: 300_000 }, () => {
  let world: ServedWorld;
  let expected: number[];
  beforeAll(async () => {
    world = await startServedWorld();
    const undisturbed = await world.open();
    await trainOn(undisturbed, world.node(undisturbed));
    expected = await finalLogprobs(undisturbed, world.server);
  }, 300_000);
  afterEach(() => world.unloadModels());
  afterAll(() => world?.close());

  /** A node whose process is dead once the named call was sent for the `count`-th time. */
  function dying(harness: Harness, call: string, count: number): ServedNode {
    let seen = 0;
    const client = new DyingClient({ url: world.server.url }, (path) => path === call && ++seen === count);
    return world.node(harness, { service: new TinkerService(client) });
  }

  /** Takes all steps. `deaths`: by step, the call after which the worker of the update dies; another takes its place. */
  async function trainThrough(deaths: Record<number, string>): Promise<Harness> {
    const harness = await world.open();
    let node = world.node(harness);
    await commitServedBase(harness, node);
    for (let step = 1; step <= lastStep; step++) {
      const planned = await harness.plan(step);
      await collect(harness, node, planned);
      await passOne(harness, step);
      const [name, count = '1'] = deaths[step]?.split(' ') ?? [];
      if (name !== undefined) {
        await expect(update(harness, dying(harness, name, Number(count)), planned)).rejects.toThrow('killed');
        node = world.node(harness);
      }
      expect(await update(harness, node, planned, name === undefined ? 1 : 2)).toMatchObject({
        applied: true,
      });
    }
    return harness;
  }

  async function expectSameEnd(harness: Harness): Promise<void> {
    expect(furthest(await finalLogprobs(harness, world.server), expected)).toBeLessThanOrEqual(1e-6);
    expect((await auditRun(harness.store, run)).violations).toEqual([]);
  }

  test('ends with the same log-probs where workers died behind a chunk, an optimizer’s step and a save', async () => {
    const calls = {
      1: '/forward_backward 1',
      2: '/optim_step 1',
      3: '/save_weights 1',
      4: '/forward_backward 2',
    };
    await expectSameEnd(await trainThrough(calls));
  });

  test('ends with the same log-probs where the server lost the model before a step’s episodes', async () => {
    const harness = await world.open();
    const node = world.node(harness);
    await commitServedBase(harness, node);
    for (let step = 1; step <= lastStep; step++) {
      const planned = await harness.plan(step);
      if (step === 3) {
        await node.holder.withState(run, step - 1, () => loseModels(harness, world.server));
        await expect(collect(harness, node, planned)).rejects.toThrow('not loaded');
      }
      await collect(harness, node, planned, step === 3 ? 2 : 1);
      await passOne(harness, step);
      await update(harness, node, planned);
    }
    await expectSameEnd(harness);
  });

  test('ends with the same log-probs after a warm start, with importance weights, where workers die at the phase’s beginning', async () => {
    const last = 4;
    const take = async (deaths: Record<number, string>): Promise<Harness> => {
      const harness = await world.open({}, { use_tis: true, max_training_steps: 2 }, true);
      let node = world.node(harness);
      await commitServedBase(harness, node);
      for (let step = 1; step <= last; step++) {
        const planned = await harness.plan(step);
        if (step > lastSftStep) {
          await collect(harness, node, planned);
          await passOne(harness, step);
        }
        const [name, count] = deaths[step]?.split(' ') ?? [];
        if (name !== undefined) {
          const dead = update(harness, dying(harness, name, Number(count)), planned);
          await expect(dead).rejects.toThrow('killed');
          node = world.node(harness);
        }
        await update(harness, node, planned, name === undefined ? 1 : 2);
      }
      return harness;
    };
    const undisturbed = await take({});
    // The first step of the phase has a model of its own, without the moments of the phase before.
    const instances = await readInstances(undisturbed.store, run);
    expect(instances.map(({ step, moments }) => [step, moments])).toEqual([
      [0, undefined],
      [lastSftStep, 'zero'],
    ]);
    const wanted = await finalLogprobs(undisturbed, world.server, last);
    const disturbed = await take({ 2: '/optim_step 1', 3: '/forward_backward 1', 4: '/forward_backward 3' });
    expect(furthest(await finalLogprobs(disturbed, world.server, last), wanted)).toBeLessThanOrEqual(1e-6);
    expect((await auditRun(disturbed.store, run)).violations).toEqual([]);
  });

  test('is far from the state of fresh adapters, so that equal log-probs mean something', async () => {
    expect(furthest(await logprobsOf(world.server, null), expected)).toBeGreaterThan(0.01);
  });
});
