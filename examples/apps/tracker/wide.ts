// A wide world of the tracker: near-duplicates of the task's issue, many other issues, and a long discussion.
import { opaqueIds } from '../opaque-ids.js';
import type { Draw } from '../random.js';
import type { Row, WorldRows } from '../table.js';
import type { Scene } from './scene.js';
import {
  closedRepositories,
  components,
  labels,
  openRepositories,
  problems,
  remarks,
  users,
} from './tables.js';

const otherIssues = 70;
const commentsOfIssue = 100;
const remarksOfComment = 6;
const additions = [
  'again',
  'on tablet',
  'after login',
  'in safari',
  'for guests',
  'of last week',
  'on staging',
  'twice',
];

/** The rows of the scene, and more. No added issue has the title of the task's, or its component and its state. */
export function widened(draw: Draw, scene: Scene): WorldRows {
  const { rows, component, id, title, state } = scene;
  const known = new Set((rows.issues ?? []).map(([issue]) => issue));
  const drawId = opaqueIds(draw);
  const newId = () => {
    let issue = drawId('ISS');
    while (known.has(issue)) issue = drawId('ISS');
    return issue;
  };
  const issueRow = (text: string, itsState: string): Row => [
    newId(),
    draw.pick([...openRepositories, ...openRepositories, ...closedRepositories]),
    ...[text, itsState, draw.pick(users), null, 'low', draw.chance(0.1) ? 1 : 0, draw.pick(users)],
    `2026-0${1 + draw.below(3)}-${String(1 + draw.below(28)).padStart(2, '0')}`,
  ];
  const otherState = state === 'open' ? 'closed' : 'open';
  const near = additions.map((words) => issueRow(`${title} ${words}`, otherState));
  const far = Array.from({ length: otherIssues }, () =>
    issueRow(
      `${draw.pickOther(components, component)} ${draw.pick(problems)} ${draw.pick(additions)}`,
      draw.pick(['open', 'closed']),
    ),
  );
  const comments = (rows.comments ?? []).filter(([issue]) => issue === id).length;
  const discussion = Array.from({ length: commentsOfIssue }, (_, i): Row => [
    id,
    comments + 1 + i,
    draw.pick(users),
    Array.from({ length: remarksOfComment }, () => draw.pick(remarks)).join('. '),
  ]);
  return {
    ...rows,
    issues: [...(rows.issues ?? []), ...near, ...far],
    issue_labels: [
      ...(rows.issue_labels ?? []),
      ...[...near, ...far].map(([issue = null]): Row => [issue, draw.pick(labels)]),
    ],
    comments: [...(rows.comments ?? []), ...discussion],
  };
}
