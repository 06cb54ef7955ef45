// The planner's tools. Each call writes to a side table that grading ignores: `pageviews` for what was read, `activities` for changes.
import type { ToolContext } from '../app.js';
import { ToolError } from '../app.js';
import { pageParameter as page, searchPage } from '../paging.js';
import type { Cell } from '../table.js';
import { hasWords } from '../text-search.js';
import { type Tool, tool } from '../tool.js';
import { kinds, projects, statuses } from './tables.js';

const done = { ok: true };
const id = { type: 'string', description: 'Issue id, such as ISS-7Q2K' } as const;
const sprint = { type: 'string', description: 'Sprint id, such as SPR-7Q2K' } as const;
const query = { type: 'string', description: 'Words of the title' } as const;

export const tools: readonly Tool[] = [
  tool({
    name: 'find_issues',
    description: 'Find issues whose title has all words of the query.',
    writes: true,
    parameters: { query, page },
    run: (context, args) => {
      const { where, values } = hasWords('title', args.query);
      const matches = context.db.all(
        `SELECT id, title, status FROM issues WHERE ${where} ORDER BY id`,
        ...values,
      );
      viewed(context, 'search', args.query);
      return searchPage(context.profile, 'issues', matches, args.page);
    },
  }),
  tool({
    name: 'view_issue',
    description: 'Show everything about an issue.',
    writes: true,
    parameters: { id },
    run: (context, args) => {
      const { db } = context;
      const issue = mustExist(context, 'issues', 'issue', args.id);
      const within = db.get('SELECT sprint FROM sprint_issues WHERE issue = ?', args.id);
      const own = db.all('SELECT label FROM issue_labels WHERE issue = ? ORDER BY label', args.id);
      const links = db.all('SELECT kind, other FROM issue_links WHERE issue = ? ORDER BY other', args.id);
      viewed(context, 'issue', args.id);
      return { ...issue, sprint: within?.sprint ?? 'none', labels: own.map(({ label }) => label), links };
    },
  }),
  tool({
    name: 'list_sprints',
    description: 'List the sprints of a project.',
    writes: true,
    parameters: { project: { type: 'string', description: 'Project', enum: projects } },
    run: (context, args) => {
      const sprints = context.db.all(
        'SELECT id, name, state FROM sprints WHERE project = ? ORDER BY id',
        args.project,
      );
      viewed(context, 'sprints', args.project);
      return { sprints };
    },
  }),
  tool({
    name: 'view_sprint',
    description: 'Show the issues of a sprint.',
    writes: true,
    parameters: { sprint },
    run: (context, args) => {
      mustExist(context, 'sprints', 'sprint', args.sprint);
      const columns =
        context.profile === 'wide' ? 'id, project, title, status, owner, points' : 'id, status, points';
      const issues = context.db.all(
        `SELECT ${columns} FROM issues JOIN sprint_issues ON issue = id WHERE sprint = ? ORDER BY id`,
        args.sprint,
      );
      viewed(context, 'sprint', args.sprint);
      return { issues };
    },
  }),
  tool({
    name: 'add_issue',
    description: 'Create an issue in a sprint.',
    writes: true,
    parameters: { sprint, title: { type: 'string', description: 'Title' } },
    run: (context, args) => {
      const { project } = mustNotBeClosed(context, args.sprint);
      const issue = context.newId('ISS', 'issues');
      context.db.run(
        `INSERT INTO issues VALUES (?, ?, ?, 'todo', ?, 1)`,
        issue,
        project as Cell,
        args.title,
        context.user,
      );
      context.db.run('INSERT INTO sprint_issues VALUES (?, ?)', args.sprint, issue);
      did(context, 'create', issue);
      return { id: issue };
    },
  }),
  tool({
    name: 'set_status',
    description: 'Set the status of an issue.',
    writes: true,
    parameters: { id, status: { type: 'string', description: 'Status', enum: statuses } },
    run: (context, args) => setColumn(context, args.id, 'status', args.status),
  }),
  tool({
    name: 'set_points',
    description: 'Set the size of an issue.',
    writes: true,
    parameters: { id, points: { type: 'integer', description: 'Points', minimum: 1, maximum: 99 } },
    run: (context, args) => setColumn(context, args.id, 'points', args.points),
  }),
  tool({
    name: 'set_owner',
    description: 'Give an issue to a user.',
    writes: true,
    parameters: { id, user: { type: 'string', description: 'User' } },
    run: (context, args) => {
      mustBeKnown(context, 'users', 'user', args.user);
      return setColumn(context, args.id, 'owner', args.user);
    },
  }),
  tool({
    name: 'label_issue',
    description: 'Put a label on an issue.',
    writes: true,
    parameters: { id, label: { type: 'string', description: 'Label' } },
    run: (context, args) => {
      mustBeKnown(context, 'labels', 'label', args.label);
      mustExist(context, 'issues', 'issue', args.id);
      context.db.run('INSERT INTO issue_labels VALUES (?, ?) ON CONFLICT DO NOTHING', args.id, args.label);
      return did(context, 'tag', args.id);
    },
  }),
  tool({
    name: 'link_issues',
    description: 'Link an issue to another one.',
    writes: true,
    parameters: { id, other: id, kind: { type: 'string', description: 'Kind', enum: kinds } },
    run: (context, args) => {
      mustExist(context, 'issues', 'issue', args.id);
      mustExist(context, 'issues', 'issue', args.other);
      if (args.id === args.other) throw new ToolError(409, `${args.id} cannot be linked to itself`);
      context.db.run(
        'INSERT INTO issue_links VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET kind = excluded.kind',
        args.id,
        args.other,
        args.kind,
      );
      return did(context, 'link', args.id);
    },
  }),
  tool({
    name: 'plan',
    description: 'Plan an issue for a sprint.',
    writes: true,
    parameters: { sprint, id },
    run: (context, args) => {
      mustNotBeClosed(context, args.sprint);
      mustExist(context, 'issues', 'issue', args.id);
      const within = context.db.get('SELECT sprint FROM sprint_issues WHERE issue = ?', args.id);
      if (within) throw new ToolError(409, `${args.id} is in ${String(within.sprint)} already`);
      context.db.run('INSERT INTO sprint_issues VALUES (?, ?)', args.sprint, args.id);
      return did(context, 'plan', args.id);
    },
  }),
  tool({
    name: 'unplan',
    description: 'Take an issue out of a sprint.',
    writes: true,
    parameters: { sprint, id },
    run: (context, args) => {
      mustNotBeClosed(context, args.sprint);
      const key = [args.sprint, args.id] as const;
      if (!context.db.get('SELECT 1 FROM sprint_issues WHERE sprint = ? AND issue = ?', ...key))
        throw new ToolError(404, `no issue ${args.id} in ${args.sprint}`);
      context.db.run('DELETE FROM sprint_issues WHERE sprint = ? AND issue = ?', ...key);
      return did(context, 'drop', args.id);
    },
  }),
  tool({
    name: 'open_sprint',
    description: 'Open a pending sprint; a project has one open sprint at most.',
    writes: true,
    parameters: { sprint },
    run: (context, args) => {
      const { project, state } = mustExist(context, 'sprints', 'sprint', args.sprint);
      if (state !== 'pending') throw new ToolError(409, `${args.sprint} is ${String(state)}`);
      const other = context.db.get(
        `SELECT id FROM sprints WHERE project = ? AND state = 'open'`,
        project as Cell,
      );
      if (other) throw new ToolError(409, `${String(other.id)} is open`);
      return setState(context, args.sprint, 'open');
    },
  }),
  tool({
    name: 'close_sprint',
    description: 'Close the open sprint.',
    writes: true,
    parameters: { sprint },
    run: (context, args) => {
      const { state } = mustExist(context, 'sprints', 'sprint', args.sprint);
      if (state !== 'open') throw new ToolError(409, `${args.sprint} is ${String(state)}`);
      return setState(context, args.sprint, 'closed');
    },
  }),
];

function setState(context: ToolContext, sprintId: string, state: string): object {
  context.db.run('UPDATE sprints SET state = ? WHERE id = ?', state, sprintId);
  return did(context, state, sprintId);
}

function setColumn(context: ToolContext, issue: string, column: string, value: Cell): object {
  mustExist(context, 'issues', 'issue', issue);
  context.db.run(`UPDATE issues SET ${column} = ? WHERE id = ?`, value, issue);
  return did(context, column, issue);
}

function mustExist(
  { db }: ToolContext,
  table: string,
  noun: string,
  rowId: string,
): Readonly<Record<string, Cell>> {
  const row = db.get(`SELECT * FROM ${table} WHERE id = ?`, rowId);
  if (!row) throw new ToolError(404, `no ${noun} ${rowId}`);
  return row;
}

function mustNotBeClosed(context: ToolContext, sprintId: string): Readonly<Record<string, Cell>> {
  const row = mustExist(context, 'sprints', 'sprint', sprintId);
  if (row.state === 'closed') throw new ToolError(409, `${sprintId} is closed`);
  return row;
}

function mustBeKnown({ db }: ToolContext, table: string, noun: string, name: string): void {
  if (!db.get(`SELECT 1 FROM ${table} WHERE name = ?`, name)) throw new ToolError(422, `no ${noun} ${name}`);
}

function viewed(context: ToolContext, what: string, target: string): void {
  append(context, 'pageviews', what, target);
}

function did(context: ToolContext, what: string, target: string): object {
  append(context, 'activities', what, target);
  viewed(context, 'issue', target);
  return done;
}

function append({ db, user }: ToolContext, table: string, what: string, target: string): void {
  db.run(
    `INSERT INTO ${table} SELECT coalesce(max(position), 0) + 1, ?, ?, ? FROM ${table}`,
    user,
    what,
    target,
  );
}
