// A task key (`tracker/close_issue/000123`) names an app, a template and a number; the whole task follows from it. A key of another profile
// names that too (`tracker/wide/close_issue/000123`). Invariant: the split is a function of the key, and one combination of entities never
// has tasks in both splits, of whichever profile.
import type { TaskRow, ToolCall } from './task-row.js';
import type { App, Profile, Scenario, TaskTemplate } from './app.js';
import { newId } from './opaque-ids.js';
import { Draw, hash32 } from './random.js';
import { appByName } from './registry.js';

export interface TaskAddress {
  key: string;
  app: App;
  profile: Profile;
  template: TaskTemplate;
  number: number;
}

/** Each template's keys have numbers below this. */
export const keyNumbers = 1_000_000;

export function formatTaskKey(
  app: App,
  template: TaskTemplate,
  number: number,
  profile: Profile = 'default',
): string {
  return `${kindName(app, template, profile)}/${String(number).padStart(6, '0')}`;
}

function kindName(app: App, template: TaskTemplate, profile: Profile): string {
  return profile === 'default' ? `${app.name}/${template.name}` : `${app.name}/${profile}/${template.name}`;
}

/** @throws RangeError if no example app or template has this key. */
function parseTaskKey(key: string): TaskAddress {
  const [, appName, wide, templateName, digits] = /^([a-z_]+)\/(wide\/)?([a-z_]+)\/(\d{6})$/.exec(key) ?? [];
  if (appName === undefined || templateName === undefined || digits === undefined) {
    throw new RangeError(`task key ${JSON.stringify(key)} is not of the form app/template/000123`);
  }
  const app = appByName(appName);
  const template = app.templates.find(({ name }) => name === templateName);
  if (!template) {
    const names = app.templates.map(({ name }) => name).join(', ');
    throw new RangeError(`${appName} has no template ${templateName}; it has ${names}`);
  }
  return { key, app, profile: wide === undefined ? 'default' : 'wide', template, number: Number(digits) };
}

const maxScenarios = 1024;
const scenarios = new Map<string, { address: TaskAddress; scenario: Scenario }>();

/** World, values and oracle of a task; the newest thousand stay in memory. @throws RangeError for an unknown key. */
export function scenarioOf(key: string): { address: TaskAddress; scenario: Scenario } {
  const known = scenarios.get(key);
  if (known) return known;
  const address = parseTaskKey(key);
  const scenario = address.template.build(new Draw(`${key}/world`), {
    profile: address.profile,
    nextId: (prefix, table, taken) => newId(key, prefix, table, taken.length, (id) => taken.includes(id)),
  });
  const entry = { address, scenario };
  if (scenarios.size >= maxScenarios) {
    const [oldest] = scenarios.keys();
    if (oldest !== undefined) scenarios.delete(oldest);
  }
  scenarios.set(key, entry);
  return entry;
}

/** The combination of entities that must stay in one split; if the template has too few combinations, the key's number. */
export function splitIdentity(key: string): string {
  const { address, scenario } = scenarioOf(key);
  const entities = scenario.entities.length > 0 ? scenario.entities : [address.number];
  return `${address.app.name}/${address.template.name}/${entities.join('/')}`;
}

// Changes which combinations are held out. The value must give both splits some combinations, even of a template that has only a dozen.
const splitSalt = 'split 0';

export function splitOf(key: string): TaskRow['split'] {
  return hash32(`${splitSalt} ${splitIdentity(key)}`) % 5 === 0 ? 'held_out' : 'train';
}

/** @throws RangeError if no example app or template has this key. */
export function taskFromKey(key: string): TaskRow {
  const { address, scenario } = scenarioOf(key);
  const { app, profile, template } = address;
  const paraphrase = new Draw(`${key}/words`).pick(template.paraphrases);
  const prompt = paraphrase.replace(/\{(\w+)\}/g, (place, name: string) => {
    const value = scenario.values[name];
    if (value === undefined) throw new Error(`template ${template.name} does not fill ${place}`);
    return String(value);
  });
  return {
    task_key: key,
    prompt,
    env_key: app.name,
    env_variables: { ...app.variables },
    difficulty: template.difficulty,
    template: kindName(app, template, profile),
    split: splitOf(key),
  };
}

/** The calls that solve a task. */
export function oracle(key: string): readonly ToolCall[] {
  return scenarioOf(key).scenario.oracle;
}

/** The final answer that solves a task; empty if the task asks nothing. */
export function oracleAnswer(key: string): string {
  return String(scenarioOf(key).scenario.question?.value ?? '');
}
