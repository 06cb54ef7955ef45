// Conditions that every template of every built-in app must meet.
import { describe, expect, it } from 'vitest';
import { oracle, scenarioOf, taskFromKey } from '../../../src/environments/apps/task-key.js';
import type { World } from '../../../src/environments/apps/world.js';
import type { ToolCall } from '../../../src/spec/records/task.js';
import { inWorld, play, rowsOf, someKeys, templates } from './play.js';

const tasksPerTemplate = 40;

/** A change to something that is no part of the task. */
function strayWrite(world: World, solution: readonly ToolCall[]): ToolCall {
  const named = JSON.stringify(solution);
  if (world.app.name === 'tracker') {
    const other = rowsOf(world, 'issues').find(
      ({ id, repository, locked }) =>
        !named.includes(String(id)) && locked === 0 && ['web', 'mobile'].includes(String(repository)),
    );
    return { name: 'add_comment', arguments: { id: other?.id, text: 'stray' } };
  }
  const other = rowsOf(world, 'bookings').find(
    ({ id, agency }) => !named.includes(String(id)) && agency === 'house',
  );
  return { name: 'add_note', arguments: { id: other?.id, note: 'stray' } };
}

describe('every app', () => {
  it('offers at least 8 tools and 16 templates of both difficulties', () => {
    for (const app of new Set(templates.map((entry) => entry.app))) {
      expect(app.tools.length).toBeGreaterThanOrEqual(8);
      expect(app.templates.length).toBeGreaterThanOrEqual(16);
      expect(new Set(app.templates.map(({ difficulty }) => difficulty))).toEqual(new Set([1, 2]));
      for (const { paraphrases } of app.templates) {
        expect(paraphrases.length).toBeGreaterThanOrEqual(2);
        expect(paraphrases.length).toBeLessThanOrEqual(4);
      }
    }
  });
});

describe.each(templates)('$name', ({ app, template }) => {
  const keys = someKeys(app, template, tasksPerTemplate);

  it('grades the oracle as 1', () => {
    for (const key of keys) {
      const { results, grade } = play(key, oracle(key));
      expect(
        results.filter(({ isError }) => isError),
        key,
      ).toEqual([]);
      expect(grade, key).toEqual({ value: 1, explanation: 'the database is as it should be' });
      expect(oracle(key), key).toHaveLength(template.difficulty);
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
        expect(world.call(stray), key).toEqual({ text: '{"ok":true}', isError: false });
        const grade = world.grade();
        expect(grade.value, key).toBe(0);
        expect(grade.explanation).toContain(`${String(stray.arguments.id)} `);
        expect(grade.explanation).toContain('stray');
      });
    }
  });

  it('finds, by search alone, the row that the oracle changes', () => {
    for (const key of keys) {
      const calls = oracle(key);
      if (calls.length < 2) continue;
      const { results } = play(key, calls);
      const acted = Object.values(calls[1]?.arguments ?? {}).find((value) =>
        /^[A-Z]{3}-/.test(String(value)),
      );
      expect(results[0]?.text, key).toContain(`"id":"${String(acted)}"`);
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
      for (const [id] of prompt.matchAll(/[A-Z]{3}-[A-Z0-9]{4}/g)) expect(content, key).toContain(`"${id}"`);
    }
  });

  it('builds the same bytes from the same key', () => {
    for (const key of keys.slice(0, 10)) {
      const calls = [...oracle(key), ...oracle(key)];
      expect(JSON.stringify(play(key, calls))).toBe(JSON.stringify(play(key, calls)));
    }
  });
});
