// Generates tasks and demonstrations of the example apps, as a function of the data spec.
import type { Demonstration, DemonstrationMessage, TaskRow, ToolCall } from './task-row.js';
import type { App, Profile, TaskTemplate } from './app.js';
import { Draw, hash32 } from './random.js';
import { appByName } from './registry.js';
import { formatTaskKey, keyNumbers, scenarioOf, splitOf, taskFromKey } from './task-key.js';
import { teacherAnswer, teacherCalls } from './teacher.js';
import { openWorld } from './world.js';

/** Share of teacher demonstrations in which the teacher searches first. */
const searchShare = 0.55;

/** Tasks get keys from the first half of a template's numbers, demonstrations from the second, so they never share a world. */
const half = keyNumbers / 2;

export interface AppChoice {
  /** Names of apps. */
  apps: readonly string[];
  profile?: Profile;
  seed: number;
}

interface TaskSpec extends AppChoice {
  train_tasks: number;
  held_out_tasks: number;
}

export interface DemonstrationSpec extends AppChoice {
  drill_demonstrations: number;
  teacher_demonstrations: number;
}

/** Training tasks, then held-out tasks. */
export function generateTasks(spec: TaskSpec): TaskRow[] {
  const take = (split: TaskRow['split'], count: number): TaskRow[] => {
    const tasks = tasksOf(spec, split);
    return Array.from({ length: count }, () => nextOf(tasks));
  };
  return [...take('train', spec.train_tasks), ...take('held_out', spec.held_out_tasks)];
}

/** All tasks of a split, which take the templates of all apps in turn. Keys are unique. */
export function* tasksOf(choice: AppChoice, split: TaskRow['split']): Generator<TaskRow> {
  const cycles = templatesOf(choice.apps).map(([app, template]) => keys(app, template, split, choice, 0));
  for (let i = 0; ; i++) yield taskFromKey(nextOf(at(cycles, i)));
}

/** Argument drills, then episodes that the imperfect teacher has played in the worlds of training tasks. */
export function generateDemonstrations(spec: DemonstrationSpec): Demonstration[] {
  return [...drills(spec), ...teacherEpisodes(spec)];
}

function drills({ apps, seed, drill_demonstrations: count }: DemonstrationSpec): Demonstration[] {
  return Array.from({ length: count }, (_, i) => {
    const app = appByName(at(apps, i));
    return drill(app, new Draw(`${seed}/drill/${app.name}/${i}`));
  });
}

// A drill gives values in prose and expects the same values as arguments, in another order. It teaches the model to copy values before it uses a tool.
function drill(app: App, draw: Draw): Demonstration {
  const names = draw.shuffled(['id', ...draw.shuffled(app.drilled).slice(0, 2 + draw.below(3))]);
  const pairs = names.map(
    (name) => [name, (app.samples[name] as (draw: Draw) => string | number)(draw)] as const,
  );
  const call = { name: 'echo', arguments: Object.fromEntries(draw.shuffled(pairs)) };
  return {
    kind: 'drill',
    messages: [
      { role: 'user', content: pairs.map(([, value]) => value).join(' ') },
      { role: 'assistant', content: callText(call) },
    ],
  };
}

function teacherEpisodes(spec: DemonstrationSpec): Demonstration[] {
  const { apps, seed, teacher_demonstrations: count } = spec;
  const cyclesOf = (isDirect: boolean) =>
    templatesOf(apps)
      .filter(([, { difficulty }]) => (difficulty === 1) === isDirect)
      .map(([app, template]) => keys(app, template, 'train', spec, half));
  // An app may have templates of one kind only.
  const [direct, searching] = [cyclesOf(true), cyclesOf(false)];
  const cycles = [direct.length > 0 ? direct : searching, searching.length > 0 ? searching : direct];
  const draw = new Draw(`${seed}/teacher`);
  const used = [0, 0];
  return Array.from({ length: count }, () => {
    const level = draw.chance(searchShare) ? 1 : 0;
    const key = nextOf(at(at(cycles, level), (used[level] as number)++));
    return teacherEpisode(key, new Draw(`${seed}/teacher/${key}`));
  });
}

/** One episode of the teacher, with the real results of its calls. */
function teacherEpisode(key: string, draw: Draw): Demonstration {
  const { address, scenario } = scenarioOf(key);
  const task = taskFromKey(key);
  const world = openWorld(key);
  try {
    const messages: DemonstrationMessage[] = [{ role: 'user', content: task.prompt }];
    for (const call of teacherCalls(address.app, scenario, draw)) {
      messages.push({ role: 'assistant', content: callText(call) });
      messages.push({ role: 'tool', content: world.call(call).text });
    }
    const answer = teacherAnswer(address.app, scenario, draw);
    messages.push({ role: 'assistant', content: `${answer} <done>`.trimStart() });
    const { env_key, env_variables } = task;
    return { kind: 'teacher', env_key, task_key: key, env_variables, messages };
  } finally {
    world.close();
  }
}

function callText(call: ToolCall): string {
  return `<tool_call>${JSON.stringify({ name: call.name, arguments: call.arguments })}</tool_call>`;
}

// Templates of all apps in turn, so that any run of consecutive tasks has equal shares of apps and templates.
function templatesOf(appNames: readonly string[]): [App, TaskTemplate][] {
  const apps = appNames.map(appByName);
  const longest = Math.max(0, ...apps.map(({ templates }) => templates.length));
  return Array.from({ length: longest }, (_, i) => i).flatMap((i) =>
    apps.flatMap((app): [App, TaskTemplate][] => {
      const template = app.templates[i];
      return template ? [[app, template]] : [];
    }),
  );
}

/** A template's keys in one split, within the half that begins at `offset`; the seed chooses the first one. */
function* keys(
  app: App,
  template: TaskTemplate,
  split: TaskRow['split'],
  { seed, profile }: AppChoice,
  offset: number,
): Generator<string> {
  const start = hash32(`${seed}/${app.name}/${template.name}`) % half;
  for (let i = 0; i < half; i++) {
    const key = formatTaskKey(app, template, offset + ((start + i) % half), profile);
    if (splitOf(key) === split) yield key;
  }
}

function nextOf<T>(generator: Generator<T>): T {
  const next = generator.next();
  if (next.done)
    throw new RangeError(`the example apps have no more tasks of one template: ask for fewer tasks`);
  return next.value;
}

function at<T>(values: readonly T[], i: number): T {
  const value = values[i % values.length];
  if (value === undefined) throw new RangeError('no app is named');
  return value;
}
