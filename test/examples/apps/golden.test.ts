// Stored datasets name tasks by key. If a key meant another world in a later version, every run that resumes on such a dataset would
// change. So a change of the generators must be on purpose, and must change these digests too.
import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { oracle, oracleAnswer, taskFromKey } from '../../../examples/apps/task-key.js';
import { generateDemonstrations, generateTasks } from '../../../examples/apps/generate.js';
import type { Profile } from '../../../examples/apps/app.js';
import { openWorld } from '../../../examples/apps/world.js';
import { play, someKeys, templates } from './play.js';

const golden = {
  tracker: '6038378b8cddc67521f763cbc1fbcae136c90943679ec87defb33ea831efe390',
  booking: 'eb73f135c2f40d99f43cb8a9b02e6facf1582f7fbfe11ddd31cb040ca4ee7ffe',
  mail: '2e4a1a217582996abd504d212f9c05f82298d02ccdaeaf0d0f5d23d331928c10',
  sprints: 'e5d79e3d469c95906b76be055d1dd7b0fc339fa5088cc4df3d036c1f72be6546',
  tickets: 'c62d62d862dc9639791c3fd568c39f025aa7dfd58027961fb37e7df5d0ab304a',
  'tracker/wide': 'b39d329bc8115c71c8091aff4af1c58969e49e95b5a2851356c99c5b59b69fef',
  'booking/wide': 'fd0b617f47a08df75bd270fc99ce1e2789458c7e1b68f9cb689d6295288e7632',
  'mail/wide': 'd2ef797fdf8030c670e199122bf7bcd9ecee1085431de5726629063850da5547',
  'sprints/wide': '826474080fadadbcbbbac451040757e3b1049ec37d4e9d9bb740254b1e8778c7',
  'tickets/wide': '86d8052b3dc72026f531d8299e5479aa1329450ce769144fdf4139d63f56fa3e',
};
const goldenData = {
  'tracker booking': '347035e1b8ad25a411bad20cd4e2fdb2ecf0681cfafb8e5c531e02bb45d418e1',
  tracker: '98da5cc1f8c9b9fb8a86f4a3e3dd174c6a5ae751c8d2239af5a650e2226298b8',
  'mail sprints tickets': '21148641c07d103bb12366d00c3cb3ae4db2b1a33754cee8ff8bb5069fe2d3fe',
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
