// A model on a Tinker server has each batch once: records that name another model do not count for it (R34), and wrong weights are noticed before
// the next optimizer step (R37). The server is simulated.
import { beforeEach, describe, expect, test } from 'vitest';
import type { AdamParams } from '../../../src/engine/tinker/service.js';
import {
  readApplied,
  readInstances,
  readSavedStates,
  recordInstance,
} from '../../../src/store/runs/served-models.js';
import { type Adapters, copyOf } from './simulation/adapters.js';
import type { ScriptedRun } from './simulation/script.js';
import { servedName, type SimulatedServer } from './simulation/server.js';
import { readPass } from './simulation/server-bytes.js';
import { misstep, take, undisturbed, type Undisturbed } from './simulation/undisturbed.js';
import type { Worker } from './simulation/worker.js';

const readers = ['run', 'visitor'] as const;

let world: Undisturbed;

const heldBy = ({ server }: Undisturbed, model: string | null) => server.models.get(model ?? '')?.adapters;

function loseSaved({ server }: Undisturbed, steps: number[]): void {
  for (const { name, type, ...save } of server.saves.values())
    if (type === 'training' && steps.some((step) => name.startsWith(`s00000${step}`)))
      server.saves.delete(`${save.model} ${type} ${name}`);
}

/** The models that take an optimizer's step from here on. */
function steppingModels(server: SimulatedServer): string[] {
  const models: string[] = [];
  const handle = server.handle.bind(server);
  server.handle = (path, body, method) => {
    if (path === '/optim_step') {
      const { model_id, adam_params } = body as { model_id: string; adam_params: AdamParams };
      if (adam_params.learning_rate > 0) models.push(model_id);
    }
    return handle(path, body, method);
  };
  return models;
}

describe('a model of which the records say only that it began with step 3', () => {
  /** Makes it as a process of node b does that dies then. */
  async function begun(run: string): Promise<{ model: string; n: number }> {
    const { store, service } = world;
    const server = service();
    const [saved] = await readSavedStates(store, 'tiny', 3);
    const created = await server.createModel(servedName, { rank: 8, seed: 7 });
    await server.loadWeights({ model_id: created.model, seq_id: 1 }, saved!.path);
    const { model, n } = await recordInstance(store, {
      ...{ run, ...created, step: 3, path: saved!.path, node: 'b', by: 'b' },
    });
    return { model, n };
  }

  async function expectAllApplied(scripted: ScriptedRun): Promise<void> {
    const { model, n } = await begun(scripted.run);
    const successor = world.worker('b');
    await successor.sample(scripted, 5, 1, 'run');
    expect(successor.sampledModel).toBe(model);
    expect(heldBy(world, model)).toEqual(scripted.states[5]!.adapters);
    for (const step of [4, 5]) expect(await readApplied(world.store, scripted.run, n, step)).not.toBeNull();
  }

  test('gets the batches after it, though updates name another model for them', async () => {
    world = await undisturbed({ steps: 5 });
    await expectAllApplied(world.run);
  });

  test('gets the batches after it, though another model has taken them again', async () => {
    world = await undisturbed({ steps: 5 });
    loseSaved(world, [4, 5]);
    await world.worker('c').sample(world.run, 5, 1, 'run');
    const again = (await readInstances(world.store, 'tiny')).at(-1)!;
    expect(await readApplied(world.store, 'tiny', again.n, 5)).not.toBeNull();
    await expectAllApplied(world.run);
  });

  test('gets the batches after it, though its fork’s parent has a model with the same number', async () => {
    world = await undisturbed({ steps: 6, fork: 5 });
    await expectAllApplied(world.runs[1]!);
    expect((await readInstances(world.store, 'branch')).map(({ n }) => n)).toEqual([1]);
  });
});

/** Weights that are not those after step 3. */
const others: [string, (world: Undisturbed) => Adapters][] = [
  ['lack the last step', ({ run }) => run.states[2]!.adapters],
  [
    'have the last step twice',
    ({ run: { states } }) => {
      const [before, after] = [states[2]!.adapters, states[3]!.adapters];
      return { ...after, weights: after.weights.map((one, at) => 2 * one - before.weights[at]!) };
    },
  ],
  ['are a neighbour’s', ({ runs }) => runs[1]!.states[3]!.adapters],
];

describe.each(others)('weights that %s', (_, otherWeights) => {
  beforeEach(async () => {
    world = await undisturbed({ steps: 4, fork: 1 }, { trained: false });
  });

  test.each<[string, (trainer: Worker) => Worker]>([
    ['the process that trained it', (trainer) => trainer],
    ['its successor', () => world.worker('a')],
  ])('are noticed before the next optimizer’s step by %s', async (_, next) => {
    const { run, server } = world;
    const trainer = world.worker('a');
    for (const step of [1, 2, 3]) await take(trainer, run, step);
    const [first] = await readInstances(world.store, 'tiny');
    server.models.get(first!.model)!.adapters = copyOf(otherWeights(world));
    const stepping = steppingModels(server);
    const worker = next(trainer);
    await worker.collect(run, 4);
    expect(worker.sampledModel).toBe(first!.model);
    await expect(worker.update(run, 4, 'held')).rejects.toThrow('does not hold the weights after step 3');
    expect(stepping).toEqual([]);
    await take(worker, run, 4);
    expect(stepping).not.toContain(first!.model);
    await worker.sample(run, 4, 1, 'run');
    expect(heldBy(world, worker.sampledModel)).toEqual(run.states[4]!.adapters);
  });

  test.each(readers)('are noticed after a load; the reader is a %s', async (reader) => {
    const { run, server } = world;
    const trainer = world.worker('a');
    for (const step of [1, 2, 3]) await take(trainer, run, step);
    server.restart();
    server.wrongLoad = () => otherWeights(world);
    const worker = world.worker('b');
    await worker.sample(run, 3, 1, reader);
    const [saved] = await readSavedStates(world.store, 'tiny', 3);
    const newest = (await readInstances(world.store, 'tiny')).findLast(({ given_up }) => !given_up);
    expect(newest).toMatchObject({ step: 2, passed_over: [saved!.path] });
    if (reader === 'run') expect(heldBy(world, worker.sampledModel)).toEqual(run.states[3]!.adapters);
  });
});

test('a step’s check is sent with its first pass, and the optimizer’s step only once both have answered', async () => {
  world = await undisturbed({ steps: 2 }, { trained: false });
  const { run, server } = world;
  const worker = world.worker('a');
  await take(worker, run, 1);
  await worker.collect(run, 2);
  const seen: string[] = [];
  const handle = server.handle.bind(server);
  let [check, polls] = ['', 0];
  server.handle = (path, body, method) => {
    const isCheck = body instanceof Uint8Array && readPass(body).forwardOnly && check === '';
    if (path === '/retrieve_future' && (body as { request_id: string }).request_id === check && polls++ < 100)
      return { status: 408, value: null };
    const answer = handle(path, body, method);
    if (isCheck) check = (answer.value as { request_id: string }).request_id;
    if (path === '/retrieve_future')
      seen.push((body as { request_id: string }).request_id === check ? 'checked' : 'done');
    else if (path !== '/session_heartbeat') seen.push(path);
    return answer;
  };
  await worker.update(run, 2, 'held');
  const [first, second, ...others] = seen;
  expect([first, second]).toEqual(['/forward_backward', '/forward_backward']);
  expect(others.indexOf('checked')).toBeGreaterThan(others.indexOf('done'));
  expect(others.indexOf('checked')).toBeLessThan(others.indexOf('/optim_step'));
});

describe.each<[string, 0 | 2]>([
  ['loses', 0],
  ['takes twice', 2],
])('a batch that is applied again, and that the server %s without saying so,', (_, times) => {
  test.each(readers)('is noticed before anything is sampled; the reader is a %s', async (reader) => {
    world = await undisturbed();
    const { run, server, store } = world;
    loseSaved(world, [3]);
    const heal = misstep(server, times);
    const worker = world.worker('b');
    const sample = () => worker.sample(run, 3, 1, reader);
    await expect(sample()).rejects.toThrow('does not hold the weights after step 3');
    expect(await readSavedStates(store, 'tiny', 3)).toHaveLength(1);
    heal();
    await sample();
    const instances = await readInstances(store, 'tiny');
    expect(new Set(instances.map(({ model }) => model)).size).toBe(3);
    if (reader === 'run') expect(heldBy(world, worker.sampledModel)).toEqual(run.states[3]!.adapters);
  });

  test('is noticed before the next one is applied again', async () => {
    world = await undisturbed();
    const { run, server } = world;
    loseSaved(world, [2, 3]);
    misstep(server, times);
    await expect(world.worker('b').sample(run, 3, 1, 'run')).rejects.toThrow('the weights after step 2');
    const { n } = (await readInstances(world.store, 'tiny')).findLast(({ given_up }) => !given_up)!;
    expect(await readApplied(world.store, 'tiny', n, 2)).toBeNull();
  });
});
