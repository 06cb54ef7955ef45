// The rescored log-probs of a step on a Tinker server (R34): the update names them, another process uses the same ones, and a damaged file
// stops the step and can be set aside. The server is faked; `exactly-once.slow.test.ts` trains on a real one.
import { beforeEach, describe, expect, it } from 'vitest';
import { quarantine } from '../../../src/cli/store/quarantine-command.js';
import { TinkerEngine } from '../../../src/engine/tinker/sampling.js';
import type { SavedOnServer, TinkerService } from '../../../src/engine/tinker/service.js';
import type { PassRequest, PassResult } from '../../../src/engine/tinker/wire.js';
import { ServedLog } from '../../../src/policy/served/served-log.js';
import { ServedStateKeeper } from '../../../src/policy/served/served-state-keeper.js';
import { sha256Hex } from '../../../src/base/sha256.js';
import { discardSamples } from '../../../src/store/runs/resampling.js';
import { batchKey } from '../../../src/store/record-keys.js';
import { readInstances } from '../../../src/store/runs/served-models.js';
import { openRunView, remedyFor } from '../../../src/store/runs/quarantine.js';
import { memoryStore, type MemoryStore } from '../../workers/follower/memory-store.js';
import {
  batch,
  flipped,
  key,
  makeCommitted,
  makeSealed,
  plan,
  policy,
  previousState,
  replace,
  run,
  state,
  step,
  stepId,
  trainerLogprobs,
} from '../../store/rescored-step.js';

const unreadable = { name: 'UnreadableRecord', key };

/** A server that keeps what it was sent. */
class FakeService {
  models = 0;
  readonly passes: PassRequest[] = [];
  readonly listed: SavedOnServer[] = [];
  /** Called after each pass. */
  onPass: () => void = () => undefined;

  createModel = () => Promise.resolve({ model: `model-${++this.models}`, session: 'session' });

  pass = (request: PassRequest): Promise<PassResult> => {
    this.passes.push(request);
    this.onPass();
    const logprobs = [...trainerLogprobs];
    return Promise.resolve({ outputs: request.data.map(() => ({ logprobs })), metrics: {} });
  };

  optimStep = () => Promise.resolve({});
  saveForSampler = (_: unknown, name: string) => Promise.resolve(`sampler/${name}`);
  saveWeights = (_: unknown, name: string) => Promise.resolve(`weights/${name}`);
  checkpoints = () => Promise.resolve(this.listed);
  unload = () => Promise.resolve();
  keepAlive = () => undefined;
  release = () => undefined;
}

/** From now on, the store lists each object as younger than those before. */
function inOrder(store: MemoryStore): void {
  const { create, list } = store;
  const keys: string[] = [];
  store.create = async (at, bytes) => {
    const answer = await create(at, bytes);
    if (answer === 'created') keys.push(at);
    return answer;
  };
  store.list = async function* (prefix) {
    for await (const info of list(prefix)) yield { ...info, modified: new Date(keys.indexOf(info.key)) };
  };
}

describe('the rescored log-probs of a step on a Tinker server', () => {
  let store: MemoryStore;
  let service: FakeService;
  beforeEach(() => {
    [store, service] = [memoryStore(), new FakeService()];
  });

  /** A worker's process that applies the step. */
  async function attempt() {
    const served = service as unknown as TinkerService;
    const engine = new TinkerEngine(served, policy);
    const states = new ServedStateKeeper({
      ...{ store, engine, policy, service: served },
      ...{ by: 'node', folder: '/nowhere', log: () => undefined },
    });
    const attempt = { signal: new AbortController().signal, progress: () => undefined };
    await states.holdForUpdate({ run, step: 0, state: previousState }, stepId, 'held', attempt);
    return states.apply({ run, step, plan, batch, stepId });
  }

  const digest = async (at = key): Promise<string> => sha256Hex((await store.get(at))!);

  it('are named by the update’s result, to every process that applies the step', async () => {
    await makeSealed(store);
    const result = await attempt();
    expect(result).toMatchObject({ state, applied: true, rescored: await digest() });
    expect((await attempt()).rescored).toBe(result.rescored);
  });

  it('stop a step that is not committed if a bit was flipped; set aside, they are made again in a model of their own', async () => {
    await makeSealed(store);
    // The first process dies behind its first training pass.
    service.onPass = () => {
      if (service.passes.length === 2) throw new Error('killed');
    };
    await expect(attempt()).rejects.toThrow('killed');
    service.onPass = () => undefined;
    await replace(store, key, flipped());
    await expect(attempt()).rejects.toMatchObject(unreadable);
    expect(await remedyFor(store, key, run)).toContain(`longhaul quarantine ${key}`);
    expect(service.models).toBe(1);
    await quarantine(store, key);
    const { rescored } = await attempt();
    expect(rescored).toBe(await digest(`${key}.r1`));
    expect(service.passes.at(-1)!.model_id).toBe('model-2');
    // The replacement is there: a later process goes on in that model.
    expect((await attempt()).rescored).toBe(rescored);
    expect((await readInstances(store, run)).at(-1)).toMatchObject({ model: 'model-2' });
  });

  it('belong to a new model if the batch of an earlier model was discarded', async () => {
    inOrder(store);
    await makeSealed(store);
    service.onPass = () => {
      if (service.passes.length === 2) throw new Error('killed');
    };
    await expect(attempt()).rejects.toThrow('killed');
    service.onPass = () => undefined;
    expect(await discardSamples(store, run)).toMatchObject({ kind: 'discarded', step });
    const sealed = (await store.get(batchKey(run, step)))!;
    await (await openRunView(store, run)).create(batchKey(run, step), sealed);
    const { served } = await attempt();
    expect(service.passes.at(-1)!.model_id).toBe('model-2');
    // A later process goes on in that model: the other batch was never sent to it.
    expect((await attempt()).served).toMatchObject({ instance: served!.instance });
    expect(service.models).toBe(2);
  });

  describe('of a committed step', () => {
    const logged = () => new ServedLog(store).step(run, step);

    it('are those that the update names, whatever the server computes', async () => {
      const rescored = await makeCommitted(store);
      const found = await (await logged())!.keepRescored(Float32Array.from([-9, -9, -9]));
      expect(found).toEqual(rescored);
    });

    it('are refused before any request if their file was changed or is missing', async () => {
      await makeCommitted(store);
      const whole = Buffer.from((await store.get(key))!);
      await replace(store, key, flipped());
      await expect(logged()).rejects.toMatchObject(unreadable);
      await store.delete(key);
      await expect(logged()).rejects.toMatchObject(unreadable);
      await store.create(key, whole);
      expect(await logged()).toMatchObject({ step });
    });

    it('cannot be set aside after the update, because the weights depend on these numbers', async () => {
      await makeCommitted(store);
      await expect(quarantine(store, key)).rejects.toThrow(/its step is committed/);
      expect(await remedyFor(store, key, run)).toBe(`Restore ${key} from a copy`);
      expect(await (await openRunView(store, run)).get(key)).not.toBeNull();
    });
  });
});
