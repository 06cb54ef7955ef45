// The mailbox's task templates. Difficulty 1 gives the message's id; difficulty 2 gives its subject, so the agent must search first.
import type { ToolCall } from '../task-row.js';
import type { Mistakes, Profile, Question, Scenario, TaskTemplate } from '../app.js';
import { searchCalls } from '../paging.js';
import type { Draw } from '../random.js';
import { drawScene, type Scene } from './scene.js';
import { contacts, folders, labels, replies } from './tables.js';

interface Plan {
  scene: Scene;
  act: ToolCall;
  mistakes: Mistakes;
  values?: Scenario['values'];
  entities?: Scenario['entities'];
  question?: Question;
}

type Planner = (draw: Draw, profile: Profile) => Plan;

/** A template that is solved by one call, with the id from the wording. */
function direct(name: string, paraphrases: string[], plan: Planner): TaskTemplate {
  const build: TaskTemplate['build'] = (draw, { profile }) => {
    const { scene, act, mistakes, values, entities = [], question } = plan(draw, profile);
    return {
      rows: scene.rows,
      values: { id: scene.id, ...values },
      entities,
      oracle: [act],
      mistakes,
      ...(question ? { question } : {}),
    };
  };
  return { name, difficulty: 1, paraphrases, build };
}

/** A template that is solved by a search for the subject, then a call. */
function found(name: string, paraphrases: string[], plan: Planner): TaskTemplate {
  const build: TaskTemplate['build'] = (draw, { profile }) => {
    const { scene, act, mistakes, values, entities = [] } = plan(draw, profile);
    const find = { name: 'find_mail', arguments: { query: scene.subject } };
    return {
      rows: scene.rows,
      values: { subject: scene.subject, ...values },
      entities: [scene.subject, ...entities],
      oracle: [...searchCalls(profile, find, scene.found(scene.subject), scene.id), act],
      mistakes,
    };
  };
  return { name, difficulty: 2, paraphrases, build };
}

const call = (name: string, id: string, rest: Record<string, string> = {}): ToolCall => ({
  name,
  arguments: { id, ...rest },
});

const flagTools = ['archive_mail', 'delete_mail', 'star_mail', 'mark_read', 'mark_unread'];

const flag =
  (tool: string, options: Parameters<typeof drawScene>[2] = {}): Planner =>
  (draw, profile) => {
    const scene = drawScene(draw, profile, options);
    return {
      scene,
      act: call(tool, scene.id),
      mistakes: { tools: flagTools.filter((name) => name !== tool) },
    };
  };

/** A call with one value besides the id. */
const withValue =
  (tool: string, argument: string, all: readonly string[], isLacking = false): Planner =>
  (draw, profile) => {
    const value = draw.pick(all);
    const scene = drawScene(draw, profile, isLacking ? { lacks: value } : {});
    return {
      scene,
      act: call(tool, scene.id, { [argument]: value }),
      mistakes: { tools: ['archive_mail', 'star_mail'], argument: { name: argument, values: all } },
      values: { [argument]: value },
      entities: [value],
    };
  };

const move = withValue('move_mail', 'folder', folders);
const label = withValue('label_mail', 'label', labels, true);
const reply = withValue('reply_mail', 'text', replies);
const forward = withValue('forward_mail', 'to', contacts);

/** The template has few values to combine, so the key's number decides the split. */
const undivided =
  (plan: Planner): Planner =>
  (draw, profile) => ({ ...plan(draw, profile), entities: [] });

export const templates: readonly TaskTemplate[] = [
  direct(
    'archive_mail',
    ['Archive {id}.', 'Please archive {id}.', '{id} is done, archive it.'],
    flag('archive_mail'),
  ),
  direct(
    'star_mail',
    ['Star {id}.', 'Please star {id}.', 'Put a star on {id}.'],
    flag('star_mail', { starred: 0 }),
  ),
  direct('unstar_mail', ['Unstar {id}.', 'Take the star off {id}.'], flag('unstar_mail', { starred: 1 })),
  direct('mark_read', ['Mark {id} as read.', '{id} is read, mark it.'], flag('mark_read', { read: 0 })),
  direct(
    'mark_unread',
    ['Mark {id} as unread.', '{id} is not read, mark it.'],
    flag('mark_unread', { read: 1 }),
  ),
  direct(
    'delete_mail',
    ['Delete {id}.', 'Please delete {id}.', 'Put {id} in the trash.'],
    flag('delete_mail'),
  ),
  direct('move_mail', ['Move {id} to {folder}.', 'Put {id} in {folder}.'], undivided(move)),
  direct('label_mail', ['Label {id} with {label}.', 'Mark {id} with the label {label}.'], undivided(label)),
  direct('reply_mail', ['Reply to {id}: "{text}".', 'Reply "{text}" to {id}.'], undivided(reply)),
  direct('forward_mail', ['Forward {id} to {to}.', 'Please forward {id} to {to}.'], undivided(forward)),
  direct('sender_of', ['Say the sender of {id}.', 'Who is the sender of {id}?'], (draw, profile) => {
    const scene = drawScene(draw, profile);
    return {
      scene,
      act: call('open_mail', scene.id),
      mistakes: { tools: ['mark_read', 'star_mail'] },
      question: { value: scene.sender, others: contacts },
    };
  }),
  found(
    'archive_found',
    ['Archive the {subject} mail.', 'Find the mail about the {subject} and archive it.'],
    flag('archive_mail'),
  ),
  found(
    'star_found',
    ['Star the {subject} mail.', 'Find the mail about the {subject} and star it.'],
    flag('star_mail', { starred: 0 }),
  ),
  found(
    'read_found',
    ['Mark the {subject} mail as read.', 'The mail about the {subject} is read, mark it.'],
    flag('mark_read', { read: 0 }),
  ),
  found(
    'move_found',
    ['Move the {subject} mail to {folder}.', 'Put the mail about the {subject} in {folder}.'],
    move,
  ),
  found(
    'label_found',
    ['Label the {subject} mail with {label}.', 'Mark the mail about the {subject} with the label {label}.'],
    label,
  ),
  found(
    'reply_found',
    ['Reply to the {subject} mail: "{text}".', 'Reply "{text}" to the mail about the {subject}.'],
    reply,
  ),
];
