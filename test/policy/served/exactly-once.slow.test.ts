// A worker that dies behind any of its calls, and a model that the server loses, cost time alone (R32 to R37).
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import { type CreatedModel, TinkerService } from '../../../src/engine/tinker/service.js';
import { readInstances, readSavedStates } from '../../../src/store/runs/served-models.js';
import { rescoredKey, savedStatesFolder, sequenceKey } from '../../../src/store/record-keys.js';
import { readUpdate } from '../../../src/store/runs/run-records.js';
import { sha256Hex } from '../../../src/base/sha256.js';
import { type Harness, lastSftStep, reviseRecord, run } from '../../activities/fixture.js';
import { longhaul } from '../../support/command-line.js';
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
  python,
} from './fixture.js';

describe.skipIf(!python)('a run on a Tinker server', () => {
  let world: ServedWorld;
  let undisturbed: Harness;
  let expected: number[];
  beforeAll(async () => {
    world = await startServedWorld();
    undisturbed = await world.open({ logprob_tolerance: 1e-3 });
    await trainOn(undisturbed, world.node(undisturbed));
    expected = await finalLogprobs(undisturbed, world.server);
  });
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
      4: '/forward_backward 3',
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
        await node.holder.withState(run, step - 1, 'visitor', () => loseModels(harness, world.server));
        await expect(collect(harness, node, planned)).rejects.toThrow('not loaded');
      }
      await collect(harness, node, planned, step === 3 ? 2 : 1);
      await passOne(harness, step);
      await update(harness, node, planned);
    }
    await expectSameEnd(harness);
  });

  test.each([
    ['made the next model and has not loaded it', '/create_model', 2],
    ['loaded the next model and has not recorded it', '/load_weights', 1],
  ])('ends with the same log-probs where a worker died that had %s', async (_, call, count) => {
    const harness = await world.open();
    let node = world.node(harness);
    await commitServedBase(harness, node);
    for (let step = 1; step <= lastStep; step++) {
      const planned = await harness.plan(step);
      if (step === 3) {
        await loseModels(harness, world.server);
        const dead = dying(harness, call, count);
        await expect(collect(harness, dead, planned)).rejects.toThrow('not loaded');
        await expect(collect(harness, dead, planned, 2)).rejects.toThrow('killed');
        node = world.node(harness);
      }
      await collect(harness, node, planned, step === 3 ? 3 : 1);
      await passOne(harness, step);
      await update(harness, node, planned);
    }
    await expectSameEnd(harness);
  });

  test('ends with the same log-probs where a reader died that had flushed the gradients of an unfinished step', async () => {
    const harness = await world.open();
    let node = world.node(harness);
    await commitServedBase(harness, node);
    for (let step = 1; step <= lastStep; step++) {
      const planned = await harness.plan(step);
      await collect(harness, node, planned);
      await passOne(harness, step);
      if (step === 2) {
        const writer = dying(harness, '/forward_backward', 3);
        await expect(update(harness, writer, planned)).rejects.toThrow('killed');
        // Its batch is sealed, so it needs a model of its own for the state before.
        const reader = dying(harness, '/optim_step', 1);
        const reading = reader.holder.withState(run, 1, 'visitor', () => Promise.resolve());
        await expect(reading).rejects.toThrow('killed');
        node = world.node(harness);
      }
      await update(harness, node, planned, step === 2 ? 2 : 1);
    }
    await expectSameEnd(harness);
  });

  test('ends with the same log-probs after a warm start, with importance weights, where workers die at the phase’s beginning', async () => {
    const last = 4;
    const take = async (deaths: Record<number, string>): Promise<Harness> => {
      const harness = await world.open({}, { use_tis: true, max_training_steps: 2 }, { warmed: true });
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
    const instances = (await readInstances(undisturbed.store, run)).filter((one) => !one.given_up);
    expect(instances.map(({ step, moments }) => [step, moments])).toEqual([
      [0, undefined],
      [lastSftStep, 'zero'],
    ]);
    const { schema, identity } = await readUpdate(undisturbed.store, run, last);
    const rescored = await undisturbed.store.get(rescoredKey(run, last, identity.batch));
    const named = { schema: 'longhaul.update/4', rescored: sha256Hex(rescored!) };
    expect({ schema, rescored: identity.rescored }).toEqual(named);
    const wanted = await finalLogprobs(undisturbed, world.server, last);
    const disturbed = await take({ 2: '/optim_step 1', 3: '/forward_backward 2', 4: '/forward_backward 4' });
    expect(furthest(await finalLogprobs(disturbed, world.server, last), wanted)).toBeLessThanOrEqual(1e-6);
    expect((await auditRun(disturbed.store, run)).violations).toEqual([]);
  });

  test('is far from the state of fresh adapters, so that equal log-probs mean something', async () => {
    expect(furthest(await logprobsOf(world.server, null), expected)).toBeGreaterThan(0.01);
  });

  describe('is replayed by an audit', () => {
    const replay = (steps: string) => {
      const where = ['--store', undisturbed.store.address, '--tinker', world.server.url];
      return longhaul(['audit', run, '--replay', steps, '--spend', '--json', ...where]);
    };

    /** Runs `use` and expects that the `count` models it made are unloaded, and that no record names one. */
    async function expectNoModelLeft<T>(use: () => Promise<T>, count = 2): Promise<T> {
      const before = await readInstances(undisturbed.store, run);
      const created = vi.spyOn(TinkerService.prototype, 'createModel');
      const unloaded = vi.spyOn(TinkerService.prototype, 'unload');
      try {
        const result = await use();
        const results = created.mock.results as { value: Promise<CreatedModel> }[];
        const models = (await Promise.all(results.map(({ value }) => value))).map(({ model }) => model);
        expect(models).toHaveLength(count);
        expect(unloaded.mock.calls.map(([model]) => model)).toEqual(expect.arrayContaining(models));
        expect(await readInstances(undisturbed.store, run)).toEqual(before);
        return result;
      } finally {
        vi.restoreAllMocks();
      }
    }

    /** While `use` runs, the record of the saved state of `step` names that of `other`. */
    async function withSavedStateOf<T>(other: number, step: number, use: () => Promise<T>): Promise<T> {
      const { store } = undisturbed;
      const key = sequenceKey(savedStatesFolder(run, step), 1);
      const path = async (of: number) => (await readSavedStates(store, run, of))[0]!.path;
      const [own, wrong] = [await path(step), await path(other)];
      await reviseRecord(store, key, 'saved', (saved) => ({ ...saved, path: wrong }));
      try {
        return await use();
      } finally {
        await reviseRecord(store, key, 'saved', (saved) => ({ ...saved, path: own }));
      }
    }

    test.each([
      ['1..4', 0, 4],
      ['3..4', 2, 2],
    ])('in a model of its own, over steps %s, with equal log-probs', async (steps, start, updates) => {
      const { code, output } = await expectNoModelLeft(() => replay(steps));
      const { replay: result, proves } = JSON.parse(output) as {
        replay: { max: number; moved: number };
        proves: object;
      };
      expect(result).toMatchObject({ start, updates, within: true });
      expect(result.max).toBeLessThanOrEqual(1e-6);
      expect(result.moved).toBeGreaterThan(0.01);
      expect(proves).toEqual({ order: true, recordedOnce: true, weights: true, bits: false });
      expect(code).toBe(0);
    });

    test.each([
      ['to compare with', 4, 3, 1, 'no saved state of step 4 loads on this server'],
      ['to begin with', 3, 1, 2, 'no saved state of step 3 loads on this server: replay 3..4'],
    ])('unless the saved state %s is that of another step', async (_, step, other, count, problem) => {
      const replayed = () => expectNoModelLeft(() => replay('4'), count);
      const { code, output } = await withSavedStateOf(other, step, replayed);
      expect(JSON.parse(output)).toMatchObject({
        error: { message: expect.stringContaining(problem) as string },
      });
      expect(code).toBe(1);
    });
  });
});
