// A paid replay on a Tinker server: it compares what it applies again with what was recorded, believes no load, and leaves nothing behind.
import { expect, test } from 'vitest';
import { planServedReplay, replayServed } from '../../../src/activities/reports/replay-served.js';
import { freshAdapters } from '../../policy/served/simulation/adapters.js';
import { misstep, undisturbed, type Undisturbed } from '../../policy/served/simulation/undisturbed.js';

async function replayOf({ store, service }: Undisturbed, from: number, to: number) {
  const log: string[] = [];
  const plan = await planServedReplay(store, 'tiny', { from, to });
  const deps = { store, service: service(), waiting: {}, at: () => undefined };
  const replayed = replayServed({ ...deps, log: (message) => void log.push(message) }, plan);
  return { plan, log, replayed };
}

test.each([{}, { rescored: true }, { phase: 2 }])(
  'of a run that is as it says agrees, and leaves the server as it was: %o',
  async (options) => {
    const world = await undisturbed(options);
    const before = [...world.server.saves.keys()];
    const { replayed, log } = await replayOf(world, 2, 3);
    expect(await replayed).toMatchObject({
      ...{ start: 1, updates: 2, checked: 2, toldApart: 2, differs: null },
      ...{ within: true, bound: 'moved' },
    });
    expect([...world.server.saves.keys()]).toEqual(before);
    expect(world.server.models.size).toBe(0);
    expect(log).toEqual([]);
  },
);

test.each<[string, 0 | 2]>([
  ['loses', 0],
  ['takes twice', 2],
])('differs after the first batch that the server %s', async (_, times) => {
  // Steps so small that only what was recorded with them shows it.
  const world = await undisturbed({ movement: 0.02 });
  misstep(world.server, times);
  const { replayed } = await replayOf(world, 2, 3);
  expect(await replayed).toMatchObject({ checked: 2, differs: 2, within: false });
});

test('of a state that the server has lost and says that it has loaded blames the load', async () => {
  const world = await undisturbed();
  for (const save of world.server.saves.values())
    if (save.type === 'training' && save.name.startsWith('s000001')) save.adapters = null;
  const { replayed, log } = await replayOf(world, 2, 3);
  await expect(replayed).rejects.toThrow(/no saved state of step 1 loads on this server: replay 1\.\.3/);
  expect(log.join()).toContain('a saved state of step 1, loads as something else');
});

test('of a state that holds other weights than its batches give differs', async () => {
  const world = await undisturbed();
  for (const save of world.server.saves.values())
    if (save.type === 'training' && save.name.startsWith('s000003')) save.adapters = freshAdapters();
  const { replayed } = await replayOf(world, 2, 3);
  await expect(replayed).rejects.toThrow(/no saved state of step 3 loads/);
});

test('has the checks of its loads in its price', async () => {
  const world = await undisturbed();
  const fromBase = await planServedReplay(world.store, 'tiny', { from: 1, to: 3 });
  const later = await planServedReplay(world.store, 'tiny', { from: 2, to: 3 });
  // Step 1 is checked as it is applied, or as its saved state is loaded.
  expect(fromBase.comparedTokens).toBe(later.comparedTokens);
});
