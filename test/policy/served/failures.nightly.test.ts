// What networks do to a run on a Tinker server: answers that are lost, doubled or late; and two workers at once. The run ends with the same
// log-probs. A control shows that it would not without the flush.
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import { TinkerClient } from '../../../src/engine/tinker/futures.js';
import { type AdamParams, TinkerService } from '../../../src/engine/tinker/service.js';
import type { PassRequest, PassResult } from '../../../src/engine/tinker/wire.js';
import { readState } from '../../../src/store/runs/run-records.js';
import { readInstances } from '../../../src/store/runs/served-models.js';
import { type Harness, run } from '../../activities/fixture.js';
import { type Fault, type FaultProxy, startFaultProxy } from '../../support/servers/fault-proxy.js';
import {
  collect,
  commitServedBase,
  DyingClient,
  finalLogprobs,
  furthest,
  lastStep,
  passOne,
  type ServedWorld,
  startServedWorld,
  trainOn,
  update,
  python,
} from './fixture.js';
import { shortPauses, train, untilDone } from './persistent-training.js';

describe.skipIf(!python)('a run on a Tinker server that fails', () => {
  let world: ServedWorld;
  let proxy: FaultProxy;
  let expected: number[];
  beforeAll(async () => {
    world = await startServedWorld();
    proxy = await startFaultProxy(world.server.url);
    const undisturbed = await world.open();
    await trainOn(undisturbed, world.node(undisturbed));
    expected = await finalLogprobs(undisturbed, world.server);
  });
  afterEach(() => world.unloadModels());
  afterAll(async () => {
    await proxy?.stop();
    await world?.close();
  });

  const distance = async (harness: Harness): Promise<number> =>
    furthest(await finalLogprobs(harness, world.server), expected);

  async function expectSameEnd(harness: Harness): Promise<void> {
    expect(await distance(harness)).toBeLessThanOrEqual(1e-6);
    expect((await auditRun(harness.store, run)).violations).toEqual([]);
  }

  describe('by a network between', () => {
    /** Every fault once for each call of a step, by turns; a creation whose answer is lost would fill the test server's three places. */
    const faults: Fault[] = [
      { kind: 'loseReply' },
      { kind: 'answer', status: 503, code: 'Away' },
      { kind: 'twice' },
      { kind: 'answerAfter', status: 500, code: 'Oops' },
      { kind: 'answer', status: 429, code: 'SlowDown' },
      { kind: 'delay', ms: 300 },
      { kind: 'reset' },
    ];

    test('ends the same where each call of a step has lost, doubled, late and refused answers', async () => {
      const harness = await world.open();
      const node = world.node(harness, {
        service: new TinkerService(new TinkerClient({ url: proxy.endpoint, ...shortPauses })),
      });
      const met = new Map<string, number>();
      proxy.plan(({ url }) => {
        const call = url.replace('/api/v1', '');
        if (
          !/^\/(forward_backward|optim_step|save_weights|save_weights_for_sampler|asample|load_weights)$/.test(
            call,
          )
        )
          return null;
        const count = (met.get(call) ?? 0) + 1;
        met.set(call, count);
        return count % 2 === 0 ? null : faults[((count - 1) / 2) % faults.length]!;
      });
      await train(harness, () => node);
      proxy.plan(() => null);
      expect([...met.keys()].sort()).toEqual([
        '/asample',
        '/forward_backward',
        '/optim_step',
        '/save_weights',
        '/save_weights_for_sampler',
      ]);
      await expectSameEnd(harness);
    });

    test('ends the same where polls for results are lost, refused or gone', async () => {
      const harness = await world.open();
      const node = world.node(harness, {
        service: new TinkerService(new TinkerClient({ url: proxy.endpoint, ...shortPauses })),
      });
      const polls: Fault[] = [
        { kind: 'answerAfter', status: 410, code: 'Gone' },
        { kind: 'answer', status: 408, code: 'NotReady' },
        { kind: 'loseReply' },
      ];
      let count = 0;
      proxy.plan(({ url }) => {
        if (!url.endsWith('/retrieve_future') || ++count < 4 || count % 3 !== 0) return null;
        return polls[(count / 3) % polls.length]!;
      });
      await train(harness, () => node);
      proxy.plan(() => null);
      await expectSameEnd(harness);
    });

    test.each([401, 402, 403])('a %i ends the attempt at once, and nothing is lost', async (status) => {
      const harness = await world.open();
      const node = world.node(harness, {
        service: new TinkerService(new TinkerClient({ url: proxy.endpoint, ...shortPauses })),
      });
      await commitServedBase(harness, node);
      const planned = await harness.plan(1);
      proxy.plan(({ url }) => (url.endsWith('/asample') ? { kind: 'answer', status, code: 'No' } : null));
      await expect(collect(harness, node, planned)).rejects.toMatchObject({ name: 'PolicyServerDenied' });
      proxy.plan(() => null);
      await collect(harness, node, planned, 2);
    });
  });

  test('ends the same where two workers take the same steps at once', async () => {
    const harness = await world.open();
    const [one, other] = [world.node(harness), world.node(harness, { name: 'node-b' })];
    await commitServedBase(harness, one);
    for (let step = 1; step <= lastStep; step++) {
      const planned = await harness.plan(step);
      await untilDone((attempt) => collect(harness, step % 2 ? one : other, planned, attempt));
      await passOne(harness, step);
      // Each gives up the other's model, until one of them has waited for long enough.
      const both = [one, other].map((node, at) =>
        untilDone((attempt) => update(harness, node, planned, 10 * at + attempt), [300, 1_000][at]),
      );
      const [a, b] = await Promise.all(both);
      expect(a!.state).toBe(b!.state);
    }
    await expectSameEnd(harness);
  });

  test('records a step whose gradient is not finite as not applied, and goes on from the state before it', async () => {
    class DivergingOnce extends TinkerService {
      private diverged = false;

      override async optimStep(...request: Parameters<TinkerService['optimStep']>) {
        const metrics = await super.optimStep(...request);
        if (this.diverged) return metrics;
        this.diverged = true;
        return { ...metrics, 'skyrl.ai/grad_norm': NaN };
      }
    }
    const harness = await world.open();
    const client = new TinkerClient({ url: world.server.url });
    const node = world.node(harness, { service: new DivergingOnce(client) });
    await commitServedBase(harness, node);
    const committed = [];
    for (const step of [1, 2]) {
      const planned = await harness.plan(step);
      await collect(harness, node, planned);
      await passOne(harness, step);
      committed.push(await update(harness, node, planned));
    }
    const state = await readState(harness.store, run, 0);
    expect(committed[0]).toMatchObject({ applied: false, reason: 'non_finite', state });
    expect(committed[1]).toMatchObject({ applied: true });
    const models = (await readInstances(harness.store, run)).filter((one) => !one.given_up);
    expect(models.map(({ step }) => step)).toEqual([0, 0]);
  });

  describe('without numbers', () => {
    /** A server that knows no numbers would see these requests. */
    class Numberless extends TinkerService {
      override pass(request: PassRequest, ...rest: []): Promise<PassResult> {
        const { seq_id: _, ...unnumbered } = request;
        return super.pass(unnumbered, ...rest);
      }

      override optimStep({ model_id }: { model_id: string; seq_id: number }, adam: AdamParams, ...rest: []) {
        return super.optimStep({ model_id } as { model_id: string; seq_id: number }, adam, ...rest);
      }
    }

    /** Trains on; the worker of the second step's update dies behind `call`. */
    async function killedBehind(call: string, numbered: boolean, Service: typeof TinkerService) {
      // R37 would notice that the weights are not those of the episodes, and begin again.
      const harness = await world.open({ numbered, logprob_tolerance: 100 });
      const healthy = world.node(harness, {
        service: new Service(new TinkerClient({ url: world.server.url })),
      });
      // The first pass is the check of the weights.
      const count = call === '/forward_backward' ? 2 : 1;
      let seen = 0;
      const client = new DyingClient({ url: world.server.url }, (path) => path === call && ++seen === count);
      const dying = world.node(harness, { service: new Service(client) });
      const next = world.node(harness, {
        service: new Service(new TinkerClient({ url: world.server.url })),
      });
      await train(harness, (step, attempt) =>
        step < 2 ? healthy : step === 2 && attempt === 1 ? dying : next,
      );
      return harness;
    }

    test('ends the same where the spec says that the server knows none', async () => {
      await expectSameEnd(await killedBehind('/optim_step', false, Numberless));
      await expectSameEnd(await killedBehind('/forward_backward', false, Numberless));
    });

    test('ends the same where the spec says that it knows them: that the batch is in the weights already is noticed', async () => {
      await expectSameEnd(await killedBehind('/optim_step', true, Numberless));
    });

    test('control: the gradients of a dead worker are trained on where a model is unloaded without a flush', async () => {
      class Unflushed extends Numberless {
        override async unload(model_id: string): Promise<boolean> {
          const client = new TinkerClient({ url: world.server.url });
          await client.run('/unload_model', { model_id }).catch(() => undefined);
          return true;
        }
      }
      expect(await distance(await killedBehind('/forward_backward', false, Unflushed))).toBeGreaterThan(0.01);
    });
  });
});
