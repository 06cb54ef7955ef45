// The planner's task templates. All describe issues and sprints by name, so that the agent must search first: two or three calls.
import type { ToolCall } from '../task-row.js';
import type { Mistakes, Profile, Question, Scenario, TaskTemplate } from '../app.js';
import { searchCalls } from '../paging.js';
import type { Draw } from '../random.js';
import { drawScene, type Scene } from './scene.js';
import { components, kinds, labels, problems, sizes, sprintNames, statuses, users } from './tables.js';

interface Plan {
  scene: Scene;
  /** The calls that find what the last one needs. */
  find: ToolCall[];
  act: ToolCall;
  mistakes: Mistakes;
  values?: Scenario['values'];
  entities: Scenario['entities'];
  question?: Question;
}

function template(
  name: string,
  paraphrases: string[],
  plan: (draw: Draw, profile: Profile) => Plan,
): TaskTemplate {
  const build: TaskTemplate['build'] = (draw, { profile }) => {
    const { scene, find, act, mistakes, values, entities, question } = plan(draw, profile);
    return {
      rows: scene.rows,
      values: {
        title: scene.issue.title,
        other: scene.sibling.title,
        sprint: scene.sprint.name,
        project: scene.project,
        ...values,
      },
      entities,
      oracle: [...find, act],
      mistakes,
      ...(question ? { question } : {}),
    };
  };
  return { name, difficulty: 2, paraphrases, build };
}

const call = (name: string, args: ToolCall['arguments']): ToolCall => ({ name, arguments: args });

function find({ profile, found }: Scene, { id, title }: { id: string; title: string }): ToolCall[] {
  return searchCalls(profile, call('find_issues', { query: title }), found(title), id);
}
const sprintsOf = ({ project }: Scene): ToolCall => call('list_sprints', { project });
const boardOf = ({ sprint }: Scene): ToolCall => call('view_sprint', { sprint: sprint.id });

/** A change of one value of the task's issue. */
function change(
  tool: string,
  argument: string,
  all: readonly (string | number)[],
  column?: 'owner' | 'points' | 'status',
) {
  return (draw: Draw, profile: Profile): Plan => {
    const value = draw.pick(all);
    let scene = drawScene(draw, profile, argument === 'label' ? { lacks: String(value) } : {});
    // The value must be a change.
    while (column && scene.issue[column] === value) scene = drawScene(draw, profile);
    return {
      scene,
      find: find(scene, scene.issue),
      act: call(tool, { id: scene.issue.id, [argument]: value }),
      mistakes: {
        tools: ['set_status', 'set_owner', 'label_issue'].filter((name) => name !== tool),
        ...(typeof value === 'string'
          ? { argument: { name: argument, values: all as readonly string[] } }
          : {}),
        rows: [scene.sibling.id],
      },
      values: { [argument]: value },
      entities: [scene.issue.title, value],
    };
  };
}

function closeOpen(draw: Draw, profile: Profile): Plan {
  const scene = drawScene(draw, profile);
  return {
    scene,
    find: [sprintsOf(scene)],
    act: call('close_sprint', { sprint: scene.sprint.id }),
    mistakes: { tools: ['open_sprint', 'view_sprint'], rows: scene.otherSprints },
    // A project has few sprints, so the key's number decides the split.
    entities: [],
  };
}

export const templates: readonly TaskTemplate[] = [
  template(
    'status_found',
    ['Set the {title} issue to {status}.', 'The {title} is {status}, set its status.'],
    change('set_status', 'status', statuses, 'status'),
  ),
  template(
    'owner_found',
    ['Give the {title} issue to {user}.', '{user} takes care of the {title}.'],
    change('set_owner', 'user', users, 'owner'),
  ),
  template(
    'points_found',
    ['Set the points of the {title} issue to {points}.', 'The {title} issue is {points} points.'],
    change('set_points', 'points', sizes, 'points'),
  ),
  template(
    'tag_found',
    ['Label the {title} issue with {label}.', 'Put the label {label} on the {title} issue.'],
    change('label_issue', 'label', labels),
  ),
  template(
    'link_found',
    [
      'Link the {title} issue to the {other} issue: it {kind} it.',
      'The {title} issue {kind} the {other} issue, link it.',
    ],
    (draw, profile) => {
      const scene = drawScene(draw, profile);
      const kind = draw.pick(kinds);
      return {
        scene,
        find: [...find(scene, scene.issue), ...find(scene, scene.sibling)],
        act: call('link_issues', { id: scene.issue.id, other: scene.sibling.id, kind }),
        mistakes: { tools: ['label_issue', 'set_status'], argument: { name: 'kind', values: kinds } },
        values: { kind },
        entities: [scene.issue.title, scene.sibling.title],
      };
    },
  ),
  template(
    'plan_found',
    [
      'Add the {title} issue to sprint {sprint} of {project}.',
      'Put the {title} in sprint {sprint} of {project}.',
    ],
    (draw, profile) => {
      const scene = drawScene(draw, profile, { sprint: draw.pick(['pending', 'open']) });
      return {
        scene,
        find: [...find(scene, scene.issue), sprintsOf(scene)],
        act: call('plan', { sprint: scene.sprint.id, id: scene.issue.id }),
        mistakes: { tools: ['unplan', 'view_sprint'], rows: scene.otherSprints },
        entities: [scene.issue.title],
      };
    },
  ),
  template(
    'unplan_found',
    [
      'Remove the {title} issue from sprint {sprint} of {project}.',
      'Take the {title} out of sprint {sprint} of {project}.',
    ],
    (draw, profile) => {
      const scene = drawScene(draw, profile, { isPlanned: true });
      return {
        scene,
        find: [...find(scene, scene.issue), sprintsOf(scene)],
        act: call('unplan', { sprint: scene.sprint.id, id: scene.issue.id }),
        mistakes: { tools: ['plan', 'view_sprint'], rows: scene.otherSprints },
        entities: [scene.issue.title],
      };
    },
  ),
  template(
    'open_sprint',
    ['Open sprint {sprint} of {project}.', 'Sprint {sprint} of {project} can begin, open it.'],
    (draw, profile) => {
      const scene = drawScene(draw, profile, { sprint: 'pending' });
      return {
        scene,
        find: [sprintsOf(scene)],
        act: call('open_sprint', { sprint: scene.sprint.id }),
        mistakes: { tools: ['close_sprint', 'view_sprint'], rows: scene.otherSprints },
        entities: [],
      };
    },
  ),
  template(
    'close_sprint',
    ['Close the open sprint of {project}.', 'The open sprint of {project} is over, close it.'],
    closeOpen,
  ),
  template(
    'close_and_name',
    [
      'Close the open sprint of {project} and say its name.',
      'Say the name of the open sprint of {project} and close it.',
    ],
    (draw, profile) => {
      const plan = closeOpen(draw, profile);
      return { ...plan, question: { value: plan.scene.sprint.name, others: sprintNames } };
    },
  ),
  template(
    'add_in_sprint',
    [
      'Create an issue {fresh} in sprint {sprint} of {project}.',
      'There is a {fresh}, create an issue in sprint {sprint} of {project}.',
    ],
    (draw, profile) => {
      const scene = drawScene(draw, profile);
      const fresh = `${draw.pick(components)} ${draw.pick(problems)}`;
      return {
        scene,
        find: [sprintsOf(scene)],
        act: call('add_issue', { sprint: scene.sprint.id, title: fresh }),
        mistakes: { tools: ['view_sprint'], rows: scene.otherSprints },
        values: { fresh },
        entities: [fresh],
      };
    },
  ),
  template(
    'done_or_tag',
    [
      'If the {title} issue is done, label it with {label}, else set it to done.',
      'Set the {title} issue to done, unless it is done already: in that case label it with {label}.',
    ],
    (draw, profile) => {
      const label = draw.pick(labels);
      const scene = drawScene(draw, profile, { lacks: label, status: draw.pick(['todo', 'done']) });
      const { id, status, title } = scene.issue;
      const tag = call('label_issue', { id, label });
      const finish = call('set_status', { id, status: 'done' });
      const [act, branch] = status === 'done' ? [tag, finish] : [finish, tag];
      return {
        scene,
        find: find(scene, scene.issue),
        act,
        mistakes: { tools: ['set_owner', 'view_issue'], branch },
        values: { label },
        entities: [title, label],
      };
    },
  ),
  template(
    'owner_of',
    ['Say the owner of the {title} issue.', 'Who is the owner of the {title} issue?'],
    (draw, profile) => {
      const scene = drawScene(draw, profile);
      return {
        scene,
        find: find(scene, scene.issue),
        act: call('view_issue', { id: scene.issue.id }),
        mistakes: { tools: ['set_owner', 'label_issue'], rows: [scene.sibling.id] },
        entities: [scene.issue.title],
        question: { value: scene.issue.owner, others: users },
      };
    },
  ),
  template(
    'open_count',
    [
      'Say the number of issues that are not done in sprint {sprint} of {project}.',
      'How many issues in sprint {sprint} of {project} are not done?',
    ],
    (draw, profile) => {
      const scene = drawScene(draw, profile);
      const open = scene.board.filter(({ status }) => status !== 'done').length;
      return {
        scene,
        find: [sprintsOf(scene)],
        act: boardOf(scene),
        mistakes: { tools: ['open_sprint', 'close_sprint'], rows: scene.otherSprints },
        entities: [],
        question: { value: open, others: [open - 1, open + 1, open + 2] },
      };
    },
  ),
  template(
    'largest_to',
    [
      'Give the issue with the most points in sprint {sprint} of {project} to {user}.',
      '{user} takes the issue with the most points in sprint {sprint} of {project}.',
    ],
    (draw, profile) => {
      const user = draw.pick(users);
      let scene = drawScene(draw, profile);
      const largest = () => scene.board.reduce((most, issue) => (issue.points > most.points ? issue : most));
      while (largest().owner === user) scene = drawScene(draw, profile);
      const { id } = largest();
      return {
        scene,
        find: [sprintsOf(scene), boardOf(scene)],
        act: call('set_owner', { id, user }),
        mistakes: {
          tools: ['label_issue', 'set_status'],
          argument: { name: 'user', values: users },
          rows: scene.board.filter((issue) => issue.id !== id).map((issue) => issue.id),
        },
        values: { user },
        entities: [user, scene.project, scene.sprint.name],
      };
    },
  ),
];
