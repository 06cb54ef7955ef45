import { describe, expect, it } from 'vitest';
import { generateDemonstrations, generateTasks } from '../../../examples/apps/generate.js';
import { appNames } from '../../../examples/apps/registry.js';
import { oracle, scenarioOf, splitIdentity, splitOf, taskFromKey } from '../../../examples/apps/task-key.js';
import type { Demonstration, ToolCall } from '../../../src/spec/records/task.js';
import { inWorld, play, someKeys, templates } from './play.js';

const spec = {
  apps: ['tracker', 'booking'],
  seed: 3,
  train_tasks: 1360,
  held_out_tasks: 340,
  drill_demonstrations: 300,
  teacher_demonstrations: 3000,
};
/** The templates of these apps. */
const ownTemplates = (names: readonly string[]) => templates.filter(({ app }) => names.includes(app.name));
const tasks = generateTasks(spec);
const demonstrations = generateDemonstrations(spec);
const drills = demonstrations.filter(({ kind }) => kind === 'drill');
const teacher = demonstrations.filter(({ kind }) => kind === 'teacher');

const callIn = (text: string) => JSON.parse(text.replace(/^<tool_call>|<\/tool_call>$/g, '')) as ToolCall;
const callsOf = ({ messages }: Demonstration) =>
  messages.flatMap(({ role, content }) =>
    role === 'assistant' && content !== '<done>' ? [callIn(content)] : [],
  );

describe('tasks', () => {
  it('have the requested number, no duplicates, and a balance of templates in both splits', () => {
    expect(tasks).toHaveLength(1700);
    expect(new Set(tasks.map(({ task_key }) => task_key)).size).toBe(1700);
    for (const [split, each] of [
      ['train', 40],
      ['held_out', 10],
    ] as const) {
      const counts = new Map<string, number>();
      for (const task of tasks.filter((candidate) => candidate.split === split)) {
        counts.set(task.template, (counts.get(task.template) ?? 0) + 1);
      }
      expect([...counts.keys()].sort()).toEqual(
        ownTemplates(spec.apps)
          .map(({ name }) => name)
          .sort(),
      );
      expect(new Set(counts.values())).toEqual(new Set([each]));
    }
  });

  it('can be built from their keys alone', () => {
    for (const task of tasks) expect(taskFromKey(task.task_key)).toEqual(task);
  });

  it('of both splits have no combination of entities in common, in any profile', () => {
    const splits = new Map<string, string>();
    const keys = [
      ...tasks.map(({ task_key }) => task_key),
      ...templates.flatMap(({ app, template }) => someKeys(app, template, 300)),
      ...templates.flatMap(({ app, template }) => someKeys(app, template, 20, 'wide')),
    ];
    for (const key of keys) {
      const identity = splitIdentity(key);
      expect(splits.get(identity) ?? splitOf(key), identity).toBe(splitOf(key));
      splits.set(identity, splitOf(key));
    }
    for (const { name } of templates) {
      const own = [...splits].filter(([identity]) => identity.startsWith(`${name}/`));
      const heldOut = own.filter(([, split]) => split === 'held_out').length / own.length;
      expect(heldOut, name).toBeGreaterThan(0.08);
      expect(heldOut, name).toBeLessThan(0.35);
    }
  });

  it('with a condition or a choice among rows are at most 12 %', () => {
    const hard = new Set(['close_or_label', 'assign_by_state', 'rate_cheapest', 'cancel_or_note']);
    const share =
      tasks.filter(({ template }) => hard.has(template.split('/')[1] ?? '')).length / tasks.length;
    expect(share).toBeLessThanOrEqual(0.12);
  });

  it('depend only on the data spec', () => {
    expect(JSON.stringify(generateTasks(spec))).toBe(JSON.stringify(tasks));
    const other = generateTasks({ ...spec, seed: 4 });
    const shared = other.filter(({ task_key }) => tasks.some((task) => task.task_key === task_key)).length;
    expect(shared).toBeLessThan(50);
  });

  it('are refused without an app, and for an unknown one', () => {
    expect(() => generateTasks({ ...spec, apps: [] })).toThrow(/no app is named/);
    expect(() => generateTasks({ ...spec, apps: ['chat'] })).toThrow(/no example app "chat"/);
  });
});

describe.each(appNames.filter((name) => !spec.apps.includes(name)))('data of %s', (name) => {
  const some = { apps: [name], seed: 3, train_tasks: 60, held_out_tasks: 30 };
  const shown = { ...some, drill_demonstrations: 5, teacher_demonstrations: 120 };

  it.each(['default', 'wide'] as const)('has tasks of both splits in the profile %s', (profile) => {
    const own = generateTasks({ ...some, profile });
    expect(new Set(own.map(({ task_key }) => task_key)).size).toBe(90);
    for (const task of own) {
      expect(taskFromKey(task.task_key)).toEqual(task);
      expect(task.task_key.startsWith(`${name}/wide/`)).toBe(profile === 'wide');
      expect(task.task_key.startsWith(`${task.template}/`)).toBe(true);
    }
  });

  it('ends each demonstration with the answer, if the task asks for one, and <done>', () => {
    const made = generateDemonstrations(shown).filter(({ kind }) => kind === 'teacher');
    let [right, asked, answered] = [0, 0, 0];
    for (const { task_key: key = '', messages } of made) {
      const last = messages.at(-1)?.content ?? '';
      const { question } = scenarioOf(key).scenario;
      expect(last).toMatch(question ? /^\S.* <done>$/ : /^<done>$/);
      const calls = messages.flatMap(({ role, content }) =>
        role === 'assistant' && content !== last ? [callIn(content)] : [],
      );
      const { value } = play(key, calls, last.replace(/ ?<done>$/, '')).grade;
      right += value;
      if (question) [asked, answered] = [asked + 1, answered + value];
    }
    expect(right).toBeGreaterThan(made.length * (name === 'mail' ? 0.9 : 0.25));
    expect(right).toBeLessThan(made.length);
    expect(asked).toBeGreaterThan(0);
    expect(answered).toBeGreaterThan(0);
  });
});

describe('drills', () => {
  it('copy every value of the prose into the arguments of a tool that no app has', () => {
    expect(drills).toHaveLength(300);
    for (const drill of drills) {
      expect(drill.env_key).toBeUndefined();
      const [user, assistant, ...rest] = drill.messages;
      expect(rest).toEqual([]);
      const call = callIn(assistant?.content ?? '');
      expect(call.name).toBe('echo');
      const values = Object.values(call.arguments).map(String);
      expect(values.length).toBeGreaterThanOrEqual(3);
      expect([...values].sort().join(' ').length).toBe(user?.content.length);
      for (const value of values) expect(user?.content).toContain(value);
    }
  });
});

describe('the teacher', () => {
  it('plays only training tasks, none of which is in the dataset', () => {
    const taken = new Set(tasks.map(({ task_key }) => task_key));
    for (const { task_key } of teacher) {
      expect(splitOf(task_key as string)).toBe('train');
      expect(taken.has(task_key as string)).toBe(false);
    }
  });

  it('shows the real results of its world', () => {
    for (const demonstration of teacher.slice(0, 300)) {
      const shown = demonstration.messages.flatMap(({ role, content }) => (role === 'tool' ? [content] : []));
      const given = inWorld(demonstration.task_key as string, (world) =>
        callsOf(demonstration).map((call) => world.call(call).text),
      );
      expect(shown).toEqual(given);
      expect(demonstration.messages.at(-1)).toEqual({ role: 'assistant', content: '<done>' });
    }
  });

  it('solves about half of its tasks, and some of every template', () => {
    const rates = new Map<string, { passed: number; all: number; characters: number }>();
    for (const demonstration of teacher) {
      const key = demonstration.task_key as string;
      const name = key.split('/').slice(0, 2).join('/');
      const rate = rates.get(name) ?? { passed: 0, all: 0, characters: 0 };
      rates.set(name, rate);
      rate.all++;
      rate.characters += demonstration.messages.reduce((sum, { content }) => sum + content.length, 0);
      rate.passed += inWorld(key, (world) => {
        for (const call of callsOf(demonstration)) world.call(call);
        return world.grade().value;
      });
    }
    const all = [...rates.values()];
    const overall = all.reduce((sum, { passed }) => sum + passed, 0) / teacher.length;
    const table = [...rates].map(([name, { passed, all: count, characters }]) =>
      [name.padEnd(26), (passed / count).toFixed(2), Math.round(characters / count)].join('  '),
    );
    console.log(['template                    pass  characters of an episode', ...table].join('\n'));
    expect(overall).toBeGreaterThan(0.42);
    expect(overall).toBeLessThan(0.55);
    for (const [name, { passed, all: count }] of rates) expect(passed / count, name).toBeGreaterThan(0.15);
    expect(rates.size).toBe(ownTemplates(spec.apps).length);
  });

  it('searches first in 55 % of its tasks', () => {
    const searching = teacher.filter(({ task_key }) => oracle(task_key as string).length === 2).length;
    expect(searching / teacher.length).toBeCloseTo(0.55, 1);
  });
});
