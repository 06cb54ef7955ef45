// The tracker's tables, and the names and values from which its databases are generated.
import type { Table } from '../table.js';

export const account = { user: 'sam', name: 'Sam Weber' };
export const today = '2026-04-15';

export const users = [
  'amir', 'bella', 'caleb', 'dora', 'edgar', 'fiona', 'gavin', 'hilda',
  'isaac', 'julia', 'kofi', 'lara', 'marco', 'nadia', 'oscar', 'petra',
] as const; // prettier-ignore
export const labels = [
  'defect', 'feature', 'blocker', 'docs', 'interface', 'server',
  'privacy', 'invoice', 'tablet', 'duplicate', 'question', 'cleanup',
] as const; // prettier-ignore
export const milestones = [
  'apollo',
  'boreal',
  'cobalt',
  'delta',
  'ember',
  'fjord',
  'granite',
  'horizon',
] as const;
export const priorities = ['low', 'medium', 'high', 'urgent'] as const;
export const components = [
  'billing', 'signup', 'gallery', 'calendar', 'search', 'export', 'editor', 'inbox',
  'webhook', 'sidebar', 'router', 'parser', 'cache', 'scheduler', 'installer', 'dashboard',
] as const; // prettier-ignore
export const problems = [
  'crash', 'timeout', 'leak', 'freeze', 'typo', 'flicker',
  'deadlock', 'overflow', 'lag', 'regression', 'mismatch', 'outage',
] as const; // prettier-ignore
export const remarks = [
  'works for me', 'needs more logs', 'fixed on main', 'ask the customer',
  'please add tests', 'same on staging', 'blocked upstream', 'ready for review',
] as const; // prettier-ignore

/** The repositories of which the account is a member. */
export const openRepositories = ['web', 'mobile'] as const;
export const closedRepositories = ['payroll', 'vault'] as const;
const repositories = [...openRepositories, ...closedRepositories];

export const tables: readonly Table[] = [
  {
    name: 'users',
    key: 1,
    columns: { name: 'TEXT NOT NULL' },
    reference: [account.user, ...users].map((name) => [name]),
  },
  {
    name: 'repositories',
    key: 1,
    columns: { name: 'TEXT NOT NULL' },
    reference: repositories.map((name) => [name]),
  },
  {
    name: 'members',
    key: 2,
    columns: {
      repository: 'TEXT NOT NULL REFERENCES repositories',
      user: 'TEXT NOT NULL REFERENCES users',
    },
    reference: [
      ...openRepositories.map((repository) => [repository, account.user]),
      ...users.map((user, i) => [repositories[i % repositories.length] as string, user]),
    ],
  },
  { name: 'labels', key: 1, columns: { name: 'TEXT NOT NULL' }, reference: labels.map((name) => [name]) },
  {
    name: 'milestones',
    key: 1,
    columns: { name: 'TEXT NOT NULL', due: 'TEXT NOT NULL' },
    reference: milestones.map((name, i) => [name, `2026-${String(5 + i).padStart(2, '0')}-01`]),
  },
  {
    name: 'issues',
    key: 1,
    columns: {
      id: 'TEXT NOT NULL',
      repository: 'TEXT NOT NULL REFERENCES repositories',
      title: 'TEXT NOT NULL',
      state: "TEXT NOT NULL CHECK (state IN ('open', 'closed'))",
      assignee: 'TEXT REFERENCES users',
      milestone: 'TEXT REFERENCES milestones',
      priority: 'TEXT NOT NULL',
      locked: 'INTEGER NOT NULL',
      author: 'TEXT NOT NULL REFERENCES users',
      created_on: 'TEXT NOT NULL',
    },
  },
  {
    name: 'issue_labels',
    key: 2,
    columns: { issue: 'TEXT NOT NULL REFERENCES issues', label: 'TEXT NOT NULL REFERENCES labels' },
  },
  {
    name: 'comments',
    key: 2,
    columns: {
      issue: 'TEXT NOT NULL REFERENCES issues',
      position: 'INTEGER NOT NULL',
      author: 'TEXT NOT NULL REFERENCES users',
      text: 'TEXT NOT NULL',
    },
  },
  {
    name: 'audit_log',
    key: 1,
    columns: {
      position: 'INTEGER NOT NULL',
      user: 'TEXT NOT NULL',
      action: 'TEXT NOT NULL',
      target: 'TEXT NOT NULL',
      on_date: 'TEXT NOT NULL',
    },
    ignored: true,
  },
];
