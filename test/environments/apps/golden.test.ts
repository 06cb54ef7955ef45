// Stored datasets name tasks by key. If a key meant another world in a later version, every run that resumes on such a dataset would
// change. So a change of the generators must be on purpose, and must change these digests too.
import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { oracle, oracleAnswer, taskFromKey } from '../../../src/environments/apps/task-key.js';
import { generateDemonstrations, generateTasks } from '../../../src/environments/apps/generate.js';
import type { Profile } from '../../../src/environments/apps/app.js';
import { openWorld } from '../../../src/environments/apps/world.js';
import { play, someKeys, templates } from './play.js';

const golden = {
  tracker: '6038378b8cddc67521f763cbc1fbcae136c90943679ec87defb33ea831efe390',
  booking: 'eb73f135c2f40d99f43cb8a9b02e6facf1582f7fbfe11ddd31cb040ca4ee7ffe',
  mail: 'ab8e294959821e12ba42a1853ff96502099982e555e74ad785e7eb0df8996fbc',
  sprints: 'd2f125be765faf90f957417927e90878023d16a22ec020aba4e77c05aa7ff1b1',
  tickets: '4856e8dd0d2492c987adf8af57ba5376fdc2e671a044a01f96a31c1134e170e1',
  'tracker/wide': 'b39d329bc8115c71c8091aff4af1c58969e49e95b5a2851356c99c5b59b69fef',
  'booking/wide': 'fd0b617f47a08df75bd270fc99ce1e2789458c7e1b68f9cb689d6295288e7632',
  'mail/wide': '3dbdb9055b796c6994dae1019af359bd343af01546a2d78f1dfca05a604977bb',
  'sprints/wide': 'fc4be984291ca89faab6fa88a59cfe06fab1728c63bbe5968d4c0692af338af2',
  'tickets/wide': '4e532387fb5b2eeca8f87af51b601c6f4d97ab3f8ccb560802e5019f0b4edb3b',
};
const goldenData = {
  'tracker booking': '347035e1b8ad25a411bad20cd4e2fdb2ecf0681cfafb8e5c531e02bb45d418e1',
  tracker: '98da5cc1f8c9b9fb8a86f4a3e3dd174c6a5ae751c8d2239af5a650e2226298b8',
  'mail sprints tickets': '5dc08dd9bd55506650ad2b756ca0c770d463066a0c52607bba8500a40fbfb7ff',
};

describe('a key always gives the same task, world and results', () => {
  it.each(Object.entries(golden))('%s', (name, digest) => {
    const hash = createHash('sha256');
    const [appName, profile = 'default'] = name.split('/') as [string, Profile?];
    for (const { app, template } of templates) {
      if (app.name !== appName) continue;
      for (const key of someKeys(app, template, profile === 'wide' ? 1 : 3, profile)) {
        const solved = play(key, oracle(key), oracleAnswer(key));
        hash.update(JSON.stringify([taskFromKey(key), play(key, []).dump, solved]));
      }
    }
    expect(hash.digest('hex')).toBe(digest);
  });
});

describe('a data spec always gives the same tasks and demonstrations', () => {
  it.each(Object.entries(goldenData))('%s', (names, digest) => {
    const spec = { apps: names.split(' '), seed: 1, train_tasks: 300, held_out_tasks: 100 };
    const demonstrations = { ...spec, drill_demonstrations: 100, teacher_demonstrations: 400 };
    const data = [generateTasks(spec), generateDemonstrations(demonstrations)];
    expect(createHash('sha256').update(JSON.stringify(data)).digest('hex')).toBe(digest);
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
