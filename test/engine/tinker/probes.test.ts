// How far log-probs of equal weights lie apart, as a probe measures it on a simulated server. Other findings: probes.nightly.test.ts.
import { expect, test } from 'vitest';
import { ProbeModels } from '../../../src/engine/tinker/probe-models.js';
import { probeLoad } from '../../../src/engine/tinker/probes.js';
import { TinkerService } from '../../../src/engine/tinker/service.js';
import { servedName } from '../../policy/served/simulation/server.js';
import { undisturbed, type Undisturbed } from '../../policy/served/simulation/undisturbed.js';

async function probed(world: Undisturbed) {
  const { signal } = new AbortController();
  const client = world.client();
  const server = { client, service: new TinkerService(client), model: servedName };
  const models = new ProbeModels({ ...server, lora: { rank: 8, seed: 3 }, signal });
  const load = await probeLoad(models);
  await models.close();
  expect(models.left).toEqual([]);
  return load;
}

test('a server that is exact has equal weights 0 apart', async () => {
  const world = await undisturbed({ movement: 1 }, { trained: false });
  expect(await probed(world)).toEqual({ found: 'restored', apart: 0 });
});

test.each([1e-5, 1e-4])('a load that is %s off is measured', async (off) => {
  const world = await undisturbed({ movement: 1 }, { trained: false });
  world.server.wrongLoad = ({ adapters }) =>
    adapters && { ...adapters, weights: adapters.weights.map((weight) => weight + off) };
  const { found, apart } = await probed(world);
  expect(found).toBe('restored');
  expect(apart).toBeGreaterThan(off / 5);
  expect(apart).toBeLessThan(off * 4);
});

test('nothing is measured where a load gives other weights', async () => {
  const world = await undisturbed({ movement: 1 }, { trained: false });
  world.server.wipe();
  world.server.wrongLoad = () => null;
  expect(await probed(world)).toEqual({ found: 'other_weights', apart: null });
});
