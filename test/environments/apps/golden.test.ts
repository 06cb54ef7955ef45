// Stored datasets name tasks by key. If a key meant another world in a later version, every run that resumes on such a dataset would
// change. So a change of the generators must be on purpose, and must change these digests too.
import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { oracle, taskFromKey } from '../../../src/environments/apps/task-key.js';
import { openWorld } from '../../../src/environments/apps/world.js';
import { play, someKeys, templates } from './play.js';

const golden = {
  tracker: '6038378b8cddc67521f763cbc1fbcae136c90943679ec87defb33ea831efe390',
  booking: 'eb73f135c2f40d99f43cb8a9b02e6facf1582f7fbfe11ddd31cb040ca4ee7ffe',
};

describe('a key always gives the same task, world and results', () => {
  it.each(Object.entries(golden))('%s', (name, digest) => {
    const hash = createHash('sha256');
    for (const { app, template } of templates) {
      if (app.name !== name) continue;
      for (const key of someKeys(app, template, 3)) {
        hash.update(JSON.stringify([taskFromKey(key), play(key, []).dump, play(key, oracle(key))]));
      }
    }
    expect(hash.digest('hex')).toBe(digest);
  });
});

describe('an episode', () => {
  it('costs at most 0.6 ms for reset, calls and grading', () => {
    const times: number[] = [];
    for (const { app, template } of templates) {
      for (const key of someKeys(app, template, 8)) {
        const calls = oracle(key);
        // One group: eight samples of one task.
        for (let sample = 0; sample < 8; sample++) {
          const start = performance.now();
          const world = openWorld(key);
          for (const call of calls) world.call(call);
          world.grade();
          world.close();
          times.push(performance.now() - start);
        }
      }
    }
    times.sort((a, b) => a - b);
    const [p50, p99] = [0.5, 0.99].map((share) => times[Math.floor(times.length * share)] as number) as [
      number,
      number,
    ];
    console.log(`episode of a built-in app: p50 ${p50.toFixed(3)} ms, p99 ${p99.toFixed(3)} ms`);
    expect(p50).toBeLessThan(0.6);
  });
});
