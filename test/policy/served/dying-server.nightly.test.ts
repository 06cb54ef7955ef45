// A Tinker server that dies amid a run's steps, and is started again. `lost-weights.slow.test.ts` has one that also loses its files.
import { expect, test } from 'vitest';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import { TinkerClient } from '../../../src/engine/tinker/futures.js';
import { TinkerService } from '../../../src/engine/tinker/service.js';
import { run } from '../../activities/fixture.js';
import { finalLogprobs, furthest, python, startServedWorld, trainOn } from './fixture.js';
import { shortPauses, train } from './persistent-training.js';

test.skipIf(!python)(
  'a run ends the same where its server was killed amid rollouts, behind an optimizer’s step and amid a save',
  async () => {
    const world = await startServedWorld();
    try {
      const undisturbed = await world.open();
      await trainOn(undisturbed, world.node(undisturbed));
      const expected = await finalLogprobs(undisturbed, world.server);
      // By call: right after so many submissions the server dies.
      const submissions: Record<string, number> = { '/asample': 6, '/optim_step': 4, '/save_weights': 4 };
      const client = new (class extends TinkerClient {
        override async call<T extends object>(...args: Parameters<TinkerClient['call']>): Promise<T> {
          const answer = await super.call<T>(...args);
          const left = submissions[args[0]];
          if (left !== undefined) submissions[args[0]] = left - 1;
          if (left === 1) await world.server.restart();
          return answer;
        }
      })({ url: world.server.url, ...shortPauses });
      const harness = await world.open();
      const node = world.node(harness, { service: new TinkerService(client) });
      await train(harness, () => node);
      expect(Object.values(submissions).every((left) => left <= 0)).toBe(true);
      expect(furthest(await finalLogprobs(harness, world.server), expected)).toBeLessThanOrEqual(1e-6);
      expect((await auditRun(harness.store, run)).violations).toEqual([]);
    } finally {
      await world.close();
    }
  },
);
