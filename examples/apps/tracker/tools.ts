// The tracker's tools. Anyone may read. A change needs membership of the issue's repository, and an issue that is not locked.
import type { ToolContext } from '../app.js';
import type { Cell } from '../table.js';
import { ToolError } from '../app.js';
import { listSize, pageParameter as page, searchPage } from '../paging.js';
import { type Tool, tool } from '../tool.js';
import { openRepositories, priorities } from './tables.js';

const done = { ok: true };
const id = { type: 'string', description: 'Issue id, such as ISS-7Q2K' } as const;
const limit = {
  type: 'integer',
  description: 'Rows of a page',
  minimum: 1,
  maximum: 50,
  optional: true,
} as const;

const issueColumns = `id, title, state, coalesce(assignee, 'none') AS assignee`;

export const tools: readonly Tool[] = [
  tool({
    name: 'search_issues',
    description: 'Find issues whose title has all words of the query.',
    writes: false,
    parameters: { query: { type: 'string', description: 'Words of the title' }, page },
    run: ({ db, profile }, args) => {
      const words = args.query.toLowerCase().split(/\s+/).filter(Boolean).slice(0, 8);
      const where = words.map(() => `instr(' ' || lower(title) || ' ', ?) > 0`).join(' AND ');
      const matches = db.all(
        `SELECT ${issueColumns} FROM issues WHERE ${where} ORDER BY id`,
        ...words.map((word) => ` ${word} `),
      );
      if (profile === 'wide') return searchPage(profile, 'issues', matches, args.page);
      return pageOf(matches, args.page ?? 1, 3);
    },
  }),
  tool({
    name: 'list_issues',
    description: 'List issues by state, a page at a time, with the total.',
    writes: false,
    parameters: {
      state: { type: 'string', description: 'State', enum: ['open', 'closed'] },
      page,
      limit,
    },
    run: ({ db, profile }, args) => {
      const size = args.limit ?? listSize[profile];
      const offset = ((args.page ?? 1) - 1) * size;
      const count = db.get('SELECT count(*) AS total FROM issues WHERE state = ?', args.state);
      const issues = db.all(
        `SELECT ${issueColumns} FROM issues WHERE state = ? ORDER BY id LIMIT ? OFFSET ?`,
        args.state,
        size,
        offset,
      );
      const total = Number(count?.total);
      const next = offset + size < total ? { next: (args.page ?? 1) + 1 } : {};
      return { issues, total, ...(profile === 'wide' ? next : {}) };
    },
  }),
  tool({
    name: 'get_issue',
    description: 'Show everything about an issue.',
    writes: false,
    parameters: { id },
    run: ({ db }, args) => {
      const issue = db.get(
        `SELECT ${issueColumns}, coalesce(milestone, 'none') AS milestone, priority, repository, locked
         FROM issues WHERE id = ?`,
        args.id,
      );
      if (!issue) throw new ToolError(404, `no issue ${args.id}`);
      const labels = db.all('SELECT label FROM issue_labels WHERE issue = ? ORDER BY label', args.id);
      const comments = db.all('SELECT author, text FROM comments WHERE issue = ? ORDER BY position', args.id);
      return { ...issue, locked: issue.locked === 1, labels: labels.map((row) => row.label), comments };
    },
  }),
  tool({
    name: 'close_issue',
    description: 'Close an issue.',
    writes: true,
    parameters: { id },
    run: (context, args) => setColumn(context, 'close', args.id, 'state', 'closed'),
  }),
  tool({
    name: 'reopen_issue',
    description: 'Open a closed issue again.',
    writes: true,
    parameters: { id },
    run: (context, args) => setColumn(context, 'reopen', args.id, 'state', 'open'),
  }),
  tool({
    name: 'lock_issue',
    description: 'Lock an issue: nobody can change it afterwards.',
    writes: true,
    parameters: { id },
    run: (context, args) => setColumn(context, 'lock', args.id, 'locked', 1),
  }),
  tool({
    name: 'assign_issue',
    description: 'Give an issue to a user.',
    writes: true,
    parameters: { id, user: { type: 'string', description: 'User name' } },
    run: (context, args) => {
      mustExist(context, 'users', 'user', args.user);
      return setColumn(context, 'assign', args.id, 'assignee', args.user);
    },
  }),
  tool({
    name: 'add_label',
    description: 'Put a label on an issue.',
    writes: true,
    parameters: { id, label: { type: 'string', description: 'Label' } },
    run: (context, args) => {
      mustExist(context, 'labels', 'label', args.label);
      mustBeChangeable(context, args.id);
      context.db.run('INSERT INTO issue_labels VALUES (?, ?) ON CONFLICT DO NOTHING', args.id, args.label);
      return logged(context, 'add_label', args.id);
    },
  }),
  tool({
    name: 'remove_label',
    description: 'Take a label off an issue.',
    writes: true,
    parameters: { id, label: { type: 'string', description: 'Label' } },
    run: (context, args) => {
      mustBeChangeable(context, args.id);
      const has = context.db.get(
        'SELECT 1 FROM issue_labels WHERE issue = ? AND label = ?',
        args.id,
        args.label,
      );
      if (!has) throw new ToolError(404, `${args.id} has no label ${args.label}`);
      context.db.run('DELETE FROM issue_labels WHERE issue = ? AND label = ?', args.id, args.label);
      return logged(context, 'remove_label', args.id);
    },
  }),
  tool({
    name: 'set_milestone',
    description: 'Plan an issue for a milestone.',
    writes: true,
    parameters: { id, milestone: { type: 'string', description: 'Milestone' } },
    run: (context, args) => {
      mustExist(context, 'milestones', 'milestone', args.milestone);
      return setColumn(context, 'set_milestone', args.id, 'milestone', args.milestone);
    },
  }),
  tool({
    name: 'set_priority',
    description: 'Set how urgent an issue is.',
    writes: true,
    parameters: { id, level: { type: 'string', description: 'Priority', enum: priorities } },
    run: (context, args) => setColumn(context, 'set_priority', args.id, 'priority', args.level),
  }),
  tool({
    name: 'add_comment',
    description: 'Comment on an issue.',
    writes: true,
    parameters: { id, text: { type: 'string', description: 'The comment' } },
    run: (context, args) => {
      mustBeChangeable(context, args.id);
      context.db.run(
        `INSERT INTO comments
         SELECT ?, coalesce(max(position), 0) + 1, ?, ? FROM comments WHERE issue = ?`,
        args.id,
        context.user,
        args.text,
        args.id,
      );
      return logged(context, 'comment', args.id);
    },
  }),
  tool({
    name: 'create_issue',
    description: 'Create an open issue with a label.',
    writes: true,
    parameters: {
      title: { type: 'string', description: 'Title' },
      label: { type: 'string', description: 'Label' },
    },
    run: (context, args) => {
      mustExist(context, 'labels', 'label', args.label);
      const issue = context.newId('ISS', 'issues');
      context.db.run(
        `INSERT INTO issues VALUES (?, ?, ?, 'open', NULL, NULL, 'low', 0, ?, ?)`,
        issue,
        openRepositories[0],
        args.title,
        context.user,
        context.today,
      );
      context.db.run('INSERT INTO issue_labels VALUES (?, ?)', issue, args.label);
      logged(context, 'create', issue);
      return { id: issue };
    },
  }),
];

/** One page of rows; with the total if there are several pages. */
function pageOf(matches: readonly object[], page: number, size: number): object {
  const issues = matches.slice((page - 1) * size, page * size);
  return issues.length === matches.length ? { issues } : { issues, total: matches.length };
}

function setColumn(context: ToolContext, action: string, issue: string, column: string, value: Cell): object {
  mustBeChangeable(context, issue);
  context.db.run(`UPDATE issues SET ${column} = ? WHERE id = ?`, value, issue);
  return logged(context, action, issue);
}

function mustBeChangeable({ db, user }: ToolContext, issue: string): void {
  const row = db.get(
    `SELECT locked, repository, EXISTS (
       SELECT 1 FROM members m WHERE m.repository = issues.repository AND m.user = ?) AS member
     FROM issues WHERE id = ?`,
    user,
    issue,
  );
  if (!row) throw new ToolError(404, `no issue ${issue}`);
  if (row.member !== 1) throw new ToolError(403, `no access to ${String(row.repository)}`);
  if (row.locked === 1) throw new ToolError(403, `${issue} is locked`);
}

function mustExist({ db }: ToolContext, table: string, noun: string, name: string): void {
  if (!db.get(`SELECT 1 FROM ${table} WHERE name = ?`, name)) throw new ToolError(422, `no ${noun} ${name}`);
}

function logged({ db, user, today }: ToolContext, action: string, target: string): object {
  db.run(
    'INSERT INTO audit_log SELECT coalesce(max(position), 0) + 1, ?, ?, ?, ? FROM audit_log',
    user,
    action,
    target,
    today,
  );
  return done;
}
