// Saved states on the server: which of them are removed, which are loaded again, and how a run continues that has lost one or shares one.
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import { forkSpec } from '../../../src/activities/run/fork-run.js';
import { openRun } from '../../../src/activities/run/open-run.js';
import { collectRollouts } from '../../../src/activities/step/collect-rollouts.js';
import { planStep } from '../../../src/activities/step/plan-step.js';
import { saveState, uploadCheckpoint } from '../../../src/activities/step/save-state.js';
import { updatePolicy } from '../../../src/activities/step/update-policy.js';
import { InDoubt } from '../../../src/engine/tinker/call-errors.js';
import { TinkerClient } from '../../../src/engine/tinker/futures.js';
import { TinkerService } from '../../../src/engine/tinker/service.js';
import { readState } from '../../../src/store/runs/run-records.js';
import { readInstances, readSavedStates } from '../../../src/store/runs/served-models.js';
import { updateKey } from '../../../src/store/record-keys.js';
import { activityId, type Harness, reviseRecord, run, workflow } from '../../activities/fixture.js';
import {
  collect,
  commitServedBase,
  finalLogprobs,
  furthest,
  lastStep,
  loseModels,
  passOne,
  type ServedNode,
  type ServedWorld,
  startServedWorld,
  trainOn,
  update,
  python,
} from './fixture.js';

describe.skipIf(!python)('saved states on a Tinker server', () => {
  let world: ServedWorld;
  let undisturbed: Harness;
  let expected: number[];
  beforeAll(async () => {
    world = await startServedWorld();
    undisturbed = await world.open();
    await trainOn(undisturbed, world.node(undisturbed));
    expected = await finalLogprobs(undisturbed, world.server);
  });
  afterEach(() => world.unloadModels());
  afterAll(() => world?.close());

  async function take(harness: Harness, node: ServedNode, step: number, attempt = 1): Promise<void> {
    const planned = await harness.plan(step);
    await collect(harness, node, planned, attempt);
    await passOne(harness, step);
    await update(harness, node, planned);
  }

  async function checkpoint(harness: Harness, node: ServedNode, step: number): Promise<void> {
    const input = { run, step, owner: 1 };
    await harness.attempt(activityId(step, 'save'), () => saveState(node, input));
    await harness.attempt(activityId(step, 'upload'), () => uploadCheckpoint(node, input));
  }

  /** Names of what the server keeps of the run's models. */
  async function listed({ store }: Harness): Promise<string[]> {
    const service = new TinkerService(new TinkerClient({ url: world.server.url }));
    const models = new Set((await readInstances(store, run)).map(({ model }) => model));
    const all = await Promise.all([...models].map((model) => service.checkpoints(model)));
    return all.flat().map(({ checkpoint_id }) => checkpoint_id);
  }

  async function expectSameEnd(harness: Harness): Promise<void> {
    expect(furthest(await finalLogprobs(harness, world.server), expected)).toBeLessThanOrEqual(1e-6);
    expect((await auditRun(harness.store, run)).violations).toEqual([]);
  }

  test('are removed with a later checkpoint, and steps between checkpoints are computed again', async () => {
    const harness = await world.open();
    const { store } = harness;
    class Away extends TinkerService {
      override removeCheckpoint(): Promise<void> {
        return Promise.reject(new InDoubt('no answer'));
      }
    }
    const away = world.node(harness, { service: new Away(new TinkerClient({ url: world.server.url })) });
    const node = world.node(harness);
    await commitServedBase(harness, node);
    for (let step = 1; step <= lastStep; step++) {
      await take(harness, node, step);
      if (step === 2) await checkpoint(harness, node, step);
      // A server that does not answer ends no step.
      if (step === 3) await checkpoint(harness, away, step);
    }
    // The first checkpoint removed the weights of state 0.
    expect(await listed(harness)).toHaveLength(7);
    await checkpoint(harness, node, lastStep);
    const names = await listed(harness);
    expect(names.filter((name) => name.startsWith('s')).map((name) => name.slice(0, 7))).toEqual(
      expect.arrayContaining(['s000002', 's000003', 's000004']),
    );
    const samplers = await Promise.all([3, 4].map((step) => readState(store, run, step)));
    expect(names.filter((name) => name.startsWith('w')).sort()).toEqual(
      samplers.map((state) => `w-${state.slice(0, 16)}`).sort(),
    );
    expect(names).toHaveLength(5);
    expect((await readSavedStates(store, run, 1)).map(({ removed }) => removed)).toEqual([undefined, true]);

    // Its state 1 is lost, and nobody looks for it.
    const other = world.node(harness);
    expect(await other.holder.withState(run, 1, 'visitor', () => Promise.resolve('held'))).toBe('held');
    expect((await readInstances(store, run)).at(-1)).toMatchObject({ step: 0, path: null });
    expect((await readInstances(store, run)).at(-1)).not.toHaveProperty('passed_over');
    await expectSameEnd(harness);
  });

  test('that are gone are passed over, and the batches after an older one applied', async () => {
    const harness = await world.open();
    const node = world.node(harness);
    await commitServedBase(harness, node);
    for (let step = 1; step <= lastStep; step++) {
      if (step === 4) {
        const service = new TinkerService(new TinkerClient({ url: world.server.url }));
        const model = (await readInstances(harness.store, run)).at(-1)!.model;
        const newest = (await service.checkpoints(model)).find(({ checkpoint_id }) =>
          checkpoint_id.startsWith('s000003'),
        )!;
        await loseModels(harness, world.server);
        await service.removeCheckpoint(model, newest);
        const next = world.node(harness);
        const planned = await harness.plan(step);
        await expect(collect(harness, next, planned)).rejects.toThrow('not loaded');
        await take(harness, next, step, 2);
        expect((await readInstances(harness.store, run)).at(-1)).toMatchObject({
          step: 2,
          passed_over: [newest.tinker_path],
        });
      } else await take(harness, node, step);
    }
    await expectSameEnd(harness);
  });

  test('serve a fork on the same node, and its parent goes on', async () => {
    const harness = await world.open();
    const { store, orchestrator } = harness;
    const node = world.node(harness);
    await commitServedBase(harness, node);
    for (let step = 1; step <= 3; step++) await take(harness, node, step);

    const spec = await forkSpec(store, 'branch', { run, step: 2 });
    const opened = await openRun(orchestrator, {
      spec,
      workflow: { ...workflow, workflowId: 'train/branch' },
    });
    const reference = { run: 'branch', step: 3, owner: opened.owner };
    const planned = await planStep(orchestrator, { ...reference, control: 0 });
    const input = { ...reference, plan: planned.plan };
    await harness.attempt('branch/collect', () =>
      collectRollouts(node, { ...input, slots: [0, planned.slots] }),
    );
    await passOne(harness, 3, 'branch');
    await harness.attempt('branch/update', () => updatePolicy(node, input));
    expect((await readInstances(store, 'branch')).map(({ step }) => step)).toEqual([2]);
    expect((await auditRun(store, 'branch')).violations).toEqual([]);

    await take(harness, node, 4);
    for (const { model } of await readInstances(store, 'branch')) await node.service.unload(model);
    await expectSameEnd(harness);
    // The fork drew the same episodes, so it has the same third state.
    expect(await readState(store, 'branch', 3)).not.toBe(await readState(store, run, 2));
  });

  test('have names that an audit can compute again', async () => {
    const { store } = undisturbed;
    const broken = async () =>
      (await auditRun(store, run)).violations.filter(({ rule }) => rule === 'R32').map(({ key }) => key);
    expect(await broken()).toEqual([]);
    const state = 'a'.repeat(64);
    await reviseRecord(store, updateKey(run, lastStep), 'update', ({ identity, ...rest }) => ({
      ...rest,
      identity: { ...identity, state },
    }));
    expect(await broken()).toEqual([updateKey(run, lastStep)]);
    await reviseRecord(store, updateKey(run, 0), 'base', ({ identity, ...rest }) => ({
      ...rest,
      identity: { ...identity, numerics: { ...identity.numerics, service: 'another' } },
    }));
    expect(await broken()).toEqual([updateKey(run, 0), updateKey(run, lastStep)]);
  });

  test('are not needed yet by a run that waits for a free place on the server', async () => {
    const harness = await world.open();
    const service = new TinkerService(new TinkerClient({ url: world.server.url }));
    const others = [];
    for (let place = 0; place < 3; place++)
      others.push(
        await service.createModel(world.server.model, { rank: 8, seed: place }, { once: place > 0 }),
      );
    const node = world.node(harness);
    await commitServedBase(harness, node);
    const planned = await harness.plan(1);
    const progress: unknown[] = [];
    const collected = harness.attempt(
      activityId(1, 'collect'),
      () => collectRollouts(node, harness.rollouts(planned)),
      1,
      progress,
    );
    await delay(3_000);
    expect(await readInstances(harness.store, run)).toEqual([]);
    for (const { model } of others) await service.unload(model);
    service.close();
    await collected;
    expect(progress).toContainEqual(
      expect.objectContaining({ waiting_reason: expect.stringMatching(/adapter|slot|model/i) as string }),
    );
  });
});
