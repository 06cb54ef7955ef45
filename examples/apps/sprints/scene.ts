// Draws a planner's world around the issue and the sprint that a task is about.
import type { Profile } from '../app.js';
import { opaqueIds } from '../opaque-ids.js';
import type { Draw } from '../random.js';
import type { Row, WorldRows } from '../table.js';
import { idsWithWords } from '../text-search.js';
import { components, labels, problems, projects, sizes, sprintNames, statuses, users } from './tables.js';

type Status = (typeof statuses)[number];

interface SubjectOptions {
  /** State of the task's sprint; if it is pending, its project has no open one. */
  sprint?: 'pending' | 'open';
  status?: Status;
  /** A label that the task's issue lacks. */
  lacks?: string;
  /** The task's issue is in the task's sprint. */
  isPlanned?: boolean;
}

interface Issue {
  id: string;
  title: string;
  status: Status;
  owner: string;
  points: number;
}

export interface Scene {
  profile: Profile;
  rows: WorldRows;
  issue: Issue;
  /** An issue of the same component. */
  sibling: Issue;
  project: string;
  sprint: { id: string; name: string };
  /** Ids of the project's other sprints. */
  otherSprints: string[];
  /** The issues of the task's sprint. */
  board: Issue[];
  /** Ids that a search for the words finds, in its order. */
  found(query: string): string[];
}

const extent = {
  default: { sprints: 3, board: 2, others: 5 },
  wide: { sprints: 12, board: 110, others: 60 },
};
/** Points of the largest issue of a wide world's sprint: more than any other has. */
const wideLargest = 21;
/** In a wide world, titles may repeat, with more words behind them. */
const additions = ['again', 'on the tablet', 'for a guest', 'at high price', 'in june', 'of a room'];

export function drawScene(draw: Draw, profile: Profile, options: SubjectOptions = {}): Scene {
  const newId = opaqueIds(draw);
  const size = extent[profile];
  const [project, ...otherProjects] = draw.shuffled(projects) as [string, ...string[]];
  const [component, ...otherComponents] = draw.shuffled(components) as [string, ...string[]];
  const [problem, otherProblem, ...otherProblems] = draw.shuffled(problems) as [string, string, ...string[]];
  const usable = labels.filter((label) => label !== options.lacks);
  const sprints: Row[] = [];
  const issues: Row[] = [];
  const sprintIssues: Row[] = [];
  const issueLabels: Row[] = [];

  const addSprint = (where: string, name: string, state: string) => {
    const id = newId('SPR');
    sprints.push([id, where, name, state]);
    return id;
  };
  const addIssue = (where: string, title: string, fixed: Partial<Issue> = {}): Issue => {
    const issue = {
      id: newId('ISS'),
      title,
      status: fixed.status ?? draw.pick(statuses),
      owner: draw.pick(users),
      points: fixed.points ?? draw.pick(sizes),
    };
    issues.push([issue.id, where, title, issue.status, issue.owner, issue.points]);
    if (draw.chance(0.3)) issueLabels.push([issue.id, draw.pick(usable)]);
    return issue;
  };
  const plan = (sprint: string, issue: Issue): Issue => {
    sprintIssues.push([sprint, issue.id]);
    return issue;
  };

  const [name, ...otherNames] = draw.shuffled(sprintNames) as [string, ...string[]];
  const state = options.sprint ?? 'open';
  const own = addSprint(project, name, state);
  const otherSprints = Array.from({ length: size.sprints - 1 }, (_, i) =>
    addSprint(
      project,
      otherNames[i % otherNames.length] as string,
      i === 0 && state === 'open' ? 'pending' : 'closed',
    ),
  );
  for (const where of otherProjects)
    addSprint(where, draw.pick([name, ...otherNames]), draw.pick(['pending', 'open']));

  // One point value each, so that one issue has the most.
  const [first, second, third, ...points] = draw.shuffled(sizes) as [number, number, number, ...number[]];
  const fixed = options.status === undefined ? {} : { status: options.status };
  const issue = addIssue(project, `${component} ${problem}`, { points: first, ...fixed });
  const sibling = addIssue(draw.pick(projects), `${component} ${otherProblem}`, { points: second });
  const board: Issue[] = options.isPlanned ? [plan(own, issue)] : [];
  board.push(
    plan(
      own,
      addIssue(project, `${otherComponents.pop()} ${problem}`, {
        status: 'todo',
        points: profile === 'wide' ? wideLargest : third,
      }),
    ),
  );
  const titles = draw
    .shuffled(otherComponents.flatMap((part) => otherProblems.map((what) => `${part} ${what}`)))
    .values();
  const nextTitle = () =>
    titles.next().value ?? `${draw.pick(otherComponents)} ${problem} ${draw.pick(additions)}`;
  const near = profile === 'wide' ? additions.map((words) => `${component} ${problem} ${words}`) : [];
  for (let i = size.board; i > 0; i--) {
    const value = profile === 'wide' ? draw.pick(sizes) : (points.pop() as number);
    board.push(plan(own, addIssue(project, nextTitle(), { points: value })));
  }
  for (let i = size.others; i > 0; i--) {
    const other = addIssue(draw.pick(projects), near.pop() ?? nextTitle());
    if (draw.chance(0.3)) plan(draw.pick(otherSprints), other);
  }
  return {
    profile,
    rows: { sprints, issues, sprint_issues: sprintIssues, issue_labels: issueLabels },
    ...{ issue, sibling, project, sprint: { id: own, name }, otherSprints, board },
    found: (query) => idsWithWords(issues, 2, query),
  };
}
