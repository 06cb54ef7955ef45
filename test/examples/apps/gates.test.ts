// Conditions that every template of every app must meet.
import { describe, expect, it } from 'vitest';
import { oracle, oracleAnswer, scenarioOf, taskFromKey } from '../../../examples/apps/task-key.js';
import type { World } from '../../../examples/apps/world.js';
import type { ToolCall } from '../../../src/spec/records/task.js';
import { apps, inWorld, play, rowsOf, someKeys, templates } from './play.js';

const tasksPerTemplate = 40;
const wideTasksPerTemplate = 5;

/** A change to something that is no part of the task, and the id that it names. */
const strayWrites: Record<string, (world: World, isFree: (id: unknown) => boolean) => ToolCall> = {
  tracker: (world, isFree) => {
    const other = rowsOf(world, 'issues').find(
      ({ id, repository, locked }) =>
        isFree(id) && locked === 0 && ['web', 'mobile'].includes(String(repository)),
    );
    return { name: 'add_comment', arguments: { id: other?.id, text: 'stray' } };
  },
  booking: (world, isFree) => {
    const other = rowsOf(world, 'bookings').find(({ id, agency }) => isFree(id) && agency === 'house');
    return { name: 'add_note', arguments: { id: other?.id, note: 'stray' } };
  },
  mail: (world, isFree) => {
    const other = rowsOf(world, 'messages').find(({ id, folder }) => isFree(id) && folder !== 'trash');
    return { name: 'reply_mail', arguments: { id: other?.id, text: 'stray' } };
  },
  sprints: (world, isFree) => {
    const other = rowsOf(world, 'issues').find(({ id }) => isFree(id));
    return { name: 'set_points', arguments: { id: other?.id, points: 99 } };
  },
  tickets: (world, isFree) => {
    const onSale = rowsOf(world, 'events').flatMap(({ id, state }) => (state === 'on sale' ? [id] : []));
    const sections = rowsOf(world, 'sections').flatMap(({ id, event }) =>
      onSale.includes(event ?? '') ? [id] : [],
    );
    const other = rowsOf(world, 'seats').find(
      ({ id, section, state }) => isFree(id) && state === 'free' && sections.includes(section ?? ''),
    );
    return { name: 'hold_seats', arguments: { seat: other?.id } };
  },
};

function strayWrite(world: World, solution: readonly ToolCall[]): ToolCall {
  const named = JSON.stringify(solution);
  const write = strayWrites[world.app.name];
  if (!write) throw new Error(`write a stray change for ${world.app.name}`);
  return write(world, (id) => !named.includes(String(id)));
}

/** False for a task that only asks: its answer is all that counts. */
function oracleChanges(key: string): boolean {
  const graded = (calls: readonly ToolCall[]) =>
    inWorld(key, (world) => {
      for (const call of calls) world.call(call);
      return world.app.tables.flatMap(({ name, ignored }) => (ignored ? [] : [world.dump().get(name)]));
    });
  return graded([]).join() !== graded(oracle(key)).join();
}

/** The number of calls that each difficulty stands for. */
const callsOf = { 1: [1, 1], 2: [2, 4], 3: [5, 12] } as const;
const opaqueId = /[A-Z]{3}-[A-Z0-9]{4}/g;

describe('every app', () => {
  it('offers at least 8 tools and 10 templates', () => {
    for (const app of new Set(templates.map((entry) => entry.app))) {
      expect(app.tools.length).toBeGreaterThanOrEqual(8);
      expect(app.templates.length, app.name).toBeGreaterThanOrEqual(10);
      for (const { paraphrases } of app.templates) {
        expect(paraphrases.length).toBeGreaterThanOrEqual(2);
        expect(paraphrases.length).toBeLessThanOrEqual(4);
      }
    }
  });

  it('has the difficulties that its tasks are for', () => {
    const difficulties = Object.fromEntries(
      apps.map((app) => [app.name, [...new Set(app.templates.map(({ difficulty }) => difficulty))].sort()]),
    );
    expect(difficulties).toEqual({
      ...{ tracker: [1, 2], booking: [1, 2], mail: [1, 2], sprints: [2], tickets: [3] },
    });
  });

  it('samples a value for each argument of its tools, and has tool names of its own', () => {
    const names = apps.flatMap((app) => app.tools.map(({ name }) => name));
    expect(new Set(names).size).toBe(names.length);
    for (const app of apps) {
      const args = new Set(app.tools.flatMap(({ input_schema }) => Object.keys(input_schema.properties)));
      expect(Object.keys(app.samples), app.name).toEqual(expect.arrayContaining([...args]));
      expect(Object.keys(app.samples), app.name).toEqual(expect.arrayContaining([...app.drilled, 'id']));
    }
  });
});

const cases = templates.flatMap(({ app, template, name }) => [
  { app, template, name, profile: 'default' as const, count: tasksPerTemplate },
  { app, template, name: `${name} (wide)`, profile: 'wide' as const, count: wideTasksPerTemplate },
]);

describe.each(cases)('$name', ({ app, template, profile, count }) => {
  const keys = someKeys(app, template, count, profile);

  it('grades the oracle as 1', () => {
    for (const key of keys) {
      const { results, grade } = play(key, oracle(key), oracleAnswer(key));
      expect(
        results.filter(({ isError }) => isError),
        key,
      ).toEqual([]);
      expect(grade.value, `${key}: ${grade.explanation}`).toBe(1);
      if (profile === 'wide') continue;
      const [least, most] = callsOf[template.difficulty];
      expect(oracle(key).length, key).toBeGreaterThanOrEqual(least);
      expect(oracle(key).length, key).toBeLessThanOrEqual(most);
    }
  });

  it('grades an episode without calls as 0', () => {
    for (const key of keys) expect(play(key, []).grade.value, key).toBe(0);
  });

  it('grades the oracle with one additional write as 0, and names the row', () => {
    for (const key of keys) {
      inWorld(key, (world) => {
        const stray = strayWrite(world, oracle(key));
        for (const call of oracle(key)) world.call(call);
        expect(world.call(stray).isError, `${key} ${JSON.stringify(stray)}`).toBe(false);
        const grade = world.grade(oracleAnswer(key));
        expect(grade.value, key).toBe(0);
        expect(grade.explanation).toContain(String(Object.values(stray.arguments)[0]));
      });
    }
  });

  it('takes each id and the answer from the prompt or an earlier result', () => {
    for (const key of keys) {
      const calls = oracle(key);
      const { prompt } = taskFromKey(key);
      let seen = prompt;
      inWorld(key, (world) => {
        for (const call of calls) {
          for (const [id] of JSON.stringify(call.arguments).matchAll(opaqueId))
            expect(seen, `${key}: ${call.name} needs ${id}`).toContain(id);
          seen += world.call(call).text;
        }
      });
      if (oracleAnswer(key) === '') continue;
      expect(prompt, key).not.toContain(oracleAnswer(key));
      // A count is not shown.
      if (typeof scenarioOf(key).scenario.question?.value === 'string')
        expect(seen, key).toContain(oracleAnswer(key));
    }
  });

  it('grades the right calls with a wrong answer, none, or all answers as 0', () => {
    for (const key of keys) {
      const { question } = scenarioOf(key).scenario;
      if (!question) continue;
      const others = question.others.filter((other) => other !== question.value).map(String);
      expect(others.length, key).toBeGreaterThan(0);
      const all = [...others, String(question.value)].join(', ');
      for (const wrong of ['', ...others.slice(0, 5), all, all.split(', ').reverse().join(' ')])
        expect(play(key, oracle(key), wrong).grade.value, `${key}: ${wrong}`).toBe(0);
      expect(play(key, [], oracleAnswer(key)).grade.value, key).toBe(oracleChanges(key) ? 0 : 1);
    }
  });

  it('mentions only things in its world', () => {
    for (const key of keys) {
      const { prompt } = taskFromKey(key);
      expect(prompt).not.toMatch(/[{}]|undefined/);
      const { values } = scenarioOf(key).scenario;
      const content = Object.values(play(key, []).dump).join('\n');
      for (const name of [
        'id',
        'hotel',
        'city',
        'guest',
        'name',
        'component',
        'user',
        'label',
        'milestone',
      ]) {
        if (values[name] !== undefined) expect(content, `${key} ${name}`).toContain(`"${values[name]}`);
      }
      for (const [id] of prompt.matchAll(opaqueId)) expect(content, key).toContain(`"${id}"`);
    }
  });

  it('builds the same bytes from the same key', () => {
    for (const key of keys.slice(0, 10)) {
      const calls = [...oracle(key), ...oracle(key)];
      expect(JSON.stringify(play(key, calls))).toBe(JSON.stringify(play(key, calls)));
    }
  });
});
