// Draws a tracker world around the issue that a task is about.
import type { Row, WorldRows } from '../table.js';
import type { Draw } from '../random.js';
import {
  closedRepositories,
  components,
  labels,
  openRepositories,
  problems,
  remarks,
  today,
  users,
} from './tables.js';

interface SubjectOptions {
  state?: 'open' | 'closed';
  /** A label that the subject must have (`has`) or must lack. */
  has?: string;
  lacks?: string;
  /** How many other issues of the component have almost the same title. */
  siblings?: number;
  siblingState?: 'open' | 'closed';
}

export interface Scene {
  rows: WorldRows;
  id: string;
  title: string;
  component: string;
  state: 'open' | 'closed';
  assignee: string;
  siblings: string[];
}

/** The task's issue is not locked, and the account may change its repository; other issues may be locked or in other repositories. */
export function drawScene(draw: Draw, options: SubjectOptions = {}): Scene {
  const component = draw.pick(components);
  const [problem, ...otherProblems] = draw.shuffled(problems) as [string, ...string[]];
  const title = `${component} ${problem}`;
  const state = options.state ?? draw.pick(['open', 'closed'] as const);
  const issues: Row[] = [];
  const issueLabels: Row[] = [];
  const comments: Row[] = [];
  const ids = new Set<string>();

  const addIssue = (issue: { title: string; state: string; mine: boolean }, own: Iterable<string>) => {
    let id = draw.opaqueId('ISS');
    while (ids.has(id)) id = draw.opaqueId('ISS');
    ids.add(id);
    const repository = issue.mine ? draw.pick(openRepositories) : draw.pick(closedRepositories);
    const locked = !issue.mine && draw.chance(0.3) ? 1 : 0;
    const assignee = draw.pick(users);
    const created = `2026-0${1 + draw.below(3)}-${String(1 + draw.below(28)).padStart(2, '0')}`;
    issues.push([
      id,
      repository,
      issue.title,
      issue.state,
      assignee,
      null,
      'low',
      locked,
      draw.pick(users),
      created,
    ]);
    for (const label of new Set(own)) issueLabels.push([id, label]);
    if (draw.chance(0.3)) comments.push([id, 1, draw.pick(users), draw.pick(remarks)]);
    return { id, assignee };
  };
  const someLabel = () => draw.pick(labels.filter((label) => label !== options.lacks));

  const subject = addIssue({ title, state, mine: true }, [
    someLabel(),
    ...(options.has ? [options.has] : []),
  ]);
  const siblings = otherProblems.slice(0, options.siblings ?? 0).map((other) =>
    addIssue(
      {
        title: `${component} ${other}`,
        state: options.siblingState ?? draw.pick(['open', 'closed']),
        mine: true,
      },
      [someLabel()],
    ),
  );
  const strangers = draw
    .shuffled(components.filter((other) => other !== component))
    .slice(0, 8 + draw.below(4));
  for (const other of strangers) {
    const issue = {
      title: `${other} ${draw.pick(problems)}`,
      state: draw.pick(['open', 'closed']),
      mine: draw.chance(0.7),
    };
    addIssue(issue, [someLabel()]);
  }
  return {
    rows: { issues, issue_labels: issueLabels, comments, audit_log: [[1, 'admin', 'import', 'all', today]] },
    id: subject.id,
    title,
    component,
    state,
    assignee: subject.assignee,
    siblings: siblings.map(({ id }) => id),
  };
}
