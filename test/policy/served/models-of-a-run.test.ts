// Models of a run on a simulated Tinker server: the state that each begins with, and the states that it saves.
import { describe, expect, test } from 'vitest';
import { readInstances, readSavedStates } from '../../../src/store/runs/served-models.js';
import { take, undisturbed, type Undisturbed } from './simulation/undisturbed.js';

const savedSteps = ({ server }: Undisturbed): string[] =>
  [...server.saves.values()]
    .filter(({ type, adapters }) => type === 'training' && adapters)
    .map(({ name }) => name.slice(0, 7));

/** Moves the saved weights of a step by a fifth of the step back, as if the server had added up gradients in another order. */
function vary({ server, run }: Undisturbed, step: number): void {
  const before = run.states[step - 1]!.adapters.weights;
  for (const { type, name, adapters } of server.saves.values())
    if (type === 'training' && name.startsWith(`s00000${step}`) && adapters)
      adapters.weights = adapters.weights.map((weight, at) => weight + 0.2 * (before[at]! - weight));
}

function lose({ server }: Undisturbed): void {
  server.wipe();
  server.restart();
}

describe('a saved state whose weights are a little off', () => {
  test('is passed over if the recorded log-probs are those of the model that saved it', async () => {
    const world = await undisturbed();
    vary(world, 3);
    await world.worker('b').sample(world.run, 3, 1, 'run');
    expect((await readInstances(world.store, 'tiny')).at(-1)).toMatchObject({ step: 2 });
  });

  test('is loaded if its batch was applied again', async () => {
    const world = await undisturbed();
    lose(world);
    await world.worker('b').sample(world.run, 3, 1, 'run');
    vary(world, 3);
    world.server.restart();
    await world.worker('c').sample(world.run, 3, 1, 'run');
    expect(await readSavedStates(world.store, 'tiny', 3)).toHaveLength(2);
    expect((await readInstances(world.store, 'tiny')).at(-1)).toMatchObject({ step: 3 });
  });
});

describe('a model that is only sampled', () => {
  test('saves the state with which a phase begins, and no other', async () => {
    const world = await undisturbed({ steps: 5, phase: 3 });
    lose(world);
    await world.worker('b').sample(world.run, 4, 1, 'visitor');
    expect(savedSteps(world)).toEqual(['s000002']);
  });

  test('saves none in a run without phases, and ends after the last sample', async () => {
    const world = await undisturbed();
    lose(world);
    await world.worker('b').sample(world.run, 2, 1, 'visitor');
    expect(savedSteps(world)).toEqual([]);
    expect(world.server.models.size).toBe(0);
  });
});

test('a model whose record cannot be written ends', async () => {
  const world = await undisturbed();
  const create = world.memory.create.bind(world.memory);
  world.memory.create = (key, bytes) => {
    if (key.includes('/instances/')) throw new Error('the store is full');
    return create(key, bytes);
  };
  const failing = world.worker('b').sample(world.run, 2, 1, 'visitor');
  await expect(failing).rejects.toThrow('the store is full');
  expect(world.server.models.size).toBe(0);
});

test('a checkpoint’s saved state stays, though weights that are not finite were saved after it', async () => {
  const world = await undisturbed({ steps: 6, poisoned: 3 }, { trained: false });
  const { run, server } = world;
  const handle = server.handle.bind(server);
  // It says nothing of the gradient, so only the check after the step finds it.
  server.handle = (path, body, method) => {
    const answer = handle(path, body, method);
    const { metrics } = (answer.value ?? {}) as { metrics?: object };
    return metrics ? { ...answer, value: {} } : answer;
  };
  const worker = world.worker('a');
  for (const { step } of run.steps) {
    await take(worker, run, step);
    if (step % 3 === 0) await worker.checkpoint(run, step);
  }
  expect(new Set(savedSteps(world))).toEqual(new Set(['s000002', 's000005', 's000006']));
});
