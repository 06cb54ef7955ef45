// Acceptance gates that every template of every built-in app must pass.
import { describe, expect, it } from 'vitest';
import { formatTaskKey, oracle, taskFromKey } from '../../../src/environments/apps/task-key.js';
import { appByName, appNames } from '../../../src/environments/apps/registry.js';
import { openWorld } from '../../../src/environments/apps/world.js';
import type { ToolCall } from '../../../src/spec/task.js';

const numbers = Array.from({ length: 25 }, (_, i) => i * 37 + 1);
const templates = appNames.flatMap((name) => appByName(name).templates.map((template) => [name, template] as const));

/** Plays the calls in a fresh world. */
function play(key: string, calls: readonly ToolCall[]) {
  const world = openWorld(key);
  try {
    const results = calls.map((call) => world.call(call));
    return { results, grade: world.grade(), dump: [...world.dump()] };
  } finally {
    world.close();
  }
}

describe.each(templates.map(([app, template]) => ({ app, name: template.name, template })))(
  '$app/$name',
  ({ app, template }) => {
    const keys = numbers.map((number) => formatTaskKey(appByName(app), template, number));

    it('gives the oracle 1 and an episode without a call 0', () => {
      for (const key of keys) {
        const { results, grade } = play(key, oracle(key));
        expect(results.filter(({ isError }) => isError)).toEqual([]);
        expect(grade, key).toEqual({ value: 1, explanation: 'the database is as it should be' });
        expect(play(key, []).grade.value, key).toBe(0);
      }
    });

    it('says no word that it did not fill', () => {
      for (const key of keys) expect(taskFromKey(key).prompt).not.toMatch(/[{}]|undefined/);
    });
  },
);
