// The tracker's task templates. Difficulty 1 gives the issue's id; difficulty 2 gives a description, so the agent must search first.
import type { ToolCall } from '../task-row.js';
import type { Mistakes, Profile, Scenario, TaskTemplate } from '../app.js';
import { searchCalls } from '../paging.js';
import type { Draw } from '../random.js';
import type { WorldRows } from '../table.js';
import { idsWithWords } from '../text-search.js';
import { drawScene, type Scene } from './scene.js';
import { components, labels, milestones, priorities, problems, remarks, users } from './tables.js';
import { widened } from './wide.js';

interface Plan {
  scene: Scene;
  act: ToolCall;
  mistakes: Mistakes;
  /** Values for the wording, in addition to id, title and component. */
  values?: Scenario['values'];
  entities?: Scenario['entities'];
}

function rowsOf(scene: Scene, draw: Draw, profile: Profile): WorldRows {
  return profile === 'wide' ? widened(draw, scene) : scene.rows;
}

function byId(name: string, paraphrases: string[], plan: (draw: Draw) => Plan): TaskTemplate {
  const build: TaskTemplate['build'] = (draw, { profile }) => {
    const { scene, act, mistakes, values, entities } = plan(draw);
    return {
      rows: rowsOf(scene, draw, profile),
      values: { id: scene.id, ...values },
      entities: entities ?? [],
      oracle: [act],
      mistakes,
    };
  };
  return { name, difficulty: 1, paraphrases, build };
}

function byTitle(
  name: string,
  paraphrases: string[],
  plan: (draw: Draw) => Plan & { query?: string },
): TaskTemplate {
  const build: TaskTemplate['build'] = (draw, { profile }) => {
    const { scene, act, mistakes, values, entities, query = scene.title } = plan(draw);
    const rows = rowsOf(scene, draw, profile);
    const find = { name: 'search_issues', arguments: { query } };
    return {
      rows,
      values: { title: scene.title, component: scene.component, ...values },
      entities: [scene.title, ...(entities ?? [])],
      oracle: [...searchCalls(profile, find, idsWithWords(rows.issues ?? [], 2, query), scene.id), act],
      mistakes,
    };
  };
  return { name, difficulty: 2, paraphrases, build };
}

const call = (name: string, id: string, rest: Record<string, string> = {}): ToolCall => ({
  name,
  arguments: { id, ...rest },
});

const stateTools = ['close_issue', 'reopen_issue', 'lock_issue'];
const otherThan = (tool: string, tools: readonly string[]) => tools.filter((name) => name !== tool);

function changeState(draw: Draw, tool: string, state: 'open' | 'closed', siblings = 0): Plan {
  const scene = drawScene(draw, { state, siblings });
  return { scene, act: call(tool, scene.id), mistakes: { tools: otherThan(tool, stateTools) } };
}

function assign(draw: Draw, siblings = 0): Plan {
  const scene = drawScene(draw, { siblings });
  const user = draw.pickOther(users, scene.assignee);
  return {
    scene,
    act: call('assign_issue', scene.id, { user }),
    mistakes: { tools: ['add_comment', 'close_issue'], argument: { name: 'user', values: users } },
    values: { user },
    entities: [user],
  };
}

function label(draw: Draw, tool: 'add_label' | 'remove_label', siblings = 0): Plan {
  const name = draw.pick(labels);
  const scene = drawScene(draw, { siblings, ...(tool === 'add_label' ? { lacks: name } : { has: name }) });
  return {
    scene,
    act: call(tool, scene.id, { label: name }),
    mistakes: {
      tools: [tool === 'add_label' ? 'remove_label' : 'add_label', 'add_comment'],
      argument: { name: 'label', values: labels },
    },
    values: { label: name },
    entities: [name],
  };
}

function setPriority(draw: Draw, siblings = 0): Plan {
  const scene = drawScene(draw, { siblings });
  // Every issue starts with the lowest priority, so another one is a change.
  const level = draw.pick(priorities.slice(1));
  return {
    scene,
    act: call('set_priority', scene.id, { level }),
    mistakes: { tools: ['add_label', 'set_milestone'], argument: { name: 'level', values: priorities } },
    values: { level },
  };
}

export const templates: readonly TaskTemplate[] = [
  byId(
    'close_issue',
    [
      'Close {id}.',
      'Work on {id} is finished, so close it.',
      'Issue {id} can be closed now.',
      'Please close {id}.',
    ],
    (draw) => changeState(draw, 'close_issue', 'open'),
  ),
  byId(
    'reopen_issue',
    [
      'Reopen {id}.',
      'Issue {id} is back, reopen it.',
      'Please open {id} again.',
      '{id} was closed too early; reopen it.',
    ],
    (draw) => changeState(draw, 'reopen_issue', 'closed'),
  ),
  byId(
    'lock_issue',
    [
      'Lock {id}.',
      'Nobody should change {id} any more, lock it.',
      'Please lock issue {id}.',
      'Put a lock on {id}.',
    ],
    (draw) => changeState(draw, 'lock_issue', draw.pick(['open', 'closed'] as const)),
  ),
  byId(
    'assign_issue',
    [
      'Assign {id} to {user}.',
      'Hand {id} over to {user}.',
      '{user} takes care of {id}.',
      'Make {user} the owner of {id}.',
    ],
    (draw) => assign(draw),
  ),
  byId(
    'add_label',
    [
      'Label {id} with {label}.',
      'Put the label {label} on {id}.',
      'Mark issue {id} as {label}.',
      '{id} needs a {label} label.',
    ],
    (draw) => label(draw, 'add_label'),
  ),
  byId(
    'remove_label',
    [
      'Remove {label} from {id}.',
      'Take the label {label} off {id}.',
      '{id} is not {label} any more, remove that label.',
    ],
    (draw) => label(draw, 'remove_label'),
  ),
  byId(
    'set_milestone',
    [
      'Plan {id} for {milestone}.',
      'Put {id} into milestone {milestone}.',
      '{id} should be done in {milestone}.',
    ],
    (draw) => {
      const scene = drawScene(draw);
      const milestone = draw.pick(milestones);
      return {
        scene,
        act: call('set_milestone', scene.id, { milestone }),
        mistakes: {
          tools: ['add_label', 'add_comment'],
          argument: { name: 'milestone', values: milestones },
        },
        values: { milestone },
      };
    },
  ),
  byId(
    'set_priority',
    ['Set the priority of {id} to {level}.', '{id} has {level} priority.', 'Give {id} {level} priority.'],
    (draw) => setPriority(draw),
  ),
  byId(
    'add_comment',
    ['Comment on {id}: {text}.', 'Write {text} on {id}.', 'Leave the comment {text} on issue {id}.'],
    (draw) => {
      const scene = drawScene(draw);
      const text = draw.pick(remarks);
      return {
        scene,
        act: call('add_comment', scene.id, { text }),
        mistakes: { tools: ['add_label', 'close_issue'], argument: { name: 'text', values: remarks } },
        values: { text },
      };
    },
  ),
  {
    name: 'create_issue',
    difficulty: 1,
    paraphrases: [
      'Create an issue {title} with the label {label}.',
      'File a new {label} issue: {title}.',
      'There is a {title}, create a {label} issue for it.',
    ],
    build: (draw, { profile }) => {
      const scene = drawScene(draw);
      const title = `${draw.pickOther(components, scene.component)} ${draw.pick(problems)}`;
      const name = draw.pick(labels);
      return {
        rows: rowsOf(scene, draw, profile),
        values: { title, label: name },
        entities: [title, name],
        oracle: [{ name: 'create_issue', arguments: { title, label: name } }],
        mistakes: { tools: ['search_issues'], argument: { name: 'label', values: labels } },
      };
    },
  },
  byTitle(
    'close_found',
    [
      'Close the issue about the {title}.',
      'The {title} is solved, close its issue.',
      'Find the {title} issue and close it.',
    ],
    (draw) => changeState(draw, 'close_issue', 'open', draw.below(3)),
  ),
  byTitle(
    'reopen_found',
    [
      'Reopen the {title} issue.',
      'We see the {title} again, reopen its issue.',
      'Find the issue about the {title} and reopen it.',
    ],
    (draw) => changeState(draw, 'reopen_issue', 'closed', draw.below(3)),
  ),
  byTitle(
    'assign_found',
    [
      'Assign the {title} issue to {user}.',
      '{user} takes care of the {title}.',
      'Hand the issue about the {title} over to {user}.',
    ],
    (draw) => assign(draw, draw.below(3)),
  ),
  byTitle(
    'label_found',
    [
      'Label the {title} issue with {label}.',
      'Put the label {label} on the issue about the {title}.',
      'Mark the {title} issue as {label}.',
    ],
    (draw) => label(draw, 'add_label', draw.below(3)),
  ),
  byTitle(
    'priority_found',
    [
      'Set the priority of the {title} issue to {level}.',
      'The {title} has {level} priority.',
      'Give the issue about the {title} {level} priority.',
    ],
    (draw) => setPriority(draw, draw.below(3)),
  ),
  byTitle(
    'close_or_label',
    [
      'If the {title} issue is open, close it, else label it with {label}.',
      'Close the {title} issue unless it is closed already; in that case label it with {label}.',
    ],
    (draw) => {
      const plan = label(draw, 'add_label', draw.below(2));
      const close = call('close_issue', plan.scene.id);
      const [act, branch] = plan.scene.state === 'open' ? [close, plan.act] : [plan.act, close];
      return { ...plan, act, mistakes: { tools: ['reopen_issue', 'lock_issue'], branch } };
    },
  ),
  byTitle(
    'assign_by_state',
    [
      'Assign the {state} {component} issue to {user}.',
      '{user} takes care of the {component} issue that is {state}.',
    ],
    (draw) => {
      const state = draw.pick(['open', 'closed'] as const);
      const scene = drawScene(draw, {
        state,
        siblings: 1,
        siblingState: state === 'open' ? 'closed' : 'open',
      });
      const user = draw.pickOther(users, scene.assignee);
      return {
        scene,
        query: scene.component,
        act: call('assign_issue', scene.id, { user }),
        mistakes: {
          tools: ['add_comment', 'close_issue'],
          argument: { name: 'user', values: users },
          rows: scene.siblings,
        },
        values: { user, state },
        entities: [user],
      };
    },
  ),
];
