// The tables of the sprint planner, and the names and values from which its databases are generated.
import type { Table } from '../table.js';

export const account = { user: 'sam', name: 'Sam Weber' };
export const today = '2026-04-15';

export const users = [
  'nadia', 'oscar', 'kofi', 'isaac', 'julia', 'edgar', 'karin', 'jorge', 'liam', 'rafael', 'igor', 'paula',
] as const; // prettier-ignore
export const projects = ['hotel', 'booking', 'board', 'view'] as const;
export const sprintNames = [
  'lima', 'cairo', 'seoul', 'bergen', 'naples', 'quito', 'tallinn', 'geneva', 'hanoi', 'perth', 'bruges', 'malaga',
] as const; // prettier-ignore
export const labels = ['defect', 'urgent', 'cleanup', 'question', 'duplicate', 'interface'] as const;
export const components = [
  'billing', 'signup', 'gallery', 'calendar', 'export', 'editor', 'webhook', 'sidebar', 'router', 'scheduler', 'installer', 'dashboard',
] as const; // prettier-ignore
export const problems = [
  'crash', 'timeout', 'leak', 'freeze', 'typo', 'flicker', 'deadlock', 'overflow', 'lag', 'outage',
] as const; // prettier-ignore
export const statuses = ['todo', 'doing', 'done'] as const;
export const kinds = ['blocks', 'duplicates', 'refers'] as const;
export const sizes = [1, 2, 3, 5, 8, 13] as const;

/** A table that each call writes to, and that grading ignores. */
const noise = (name: string, about: string): Table => ({
  name,
  key: 1,
  columns: {
    position: 'INTEGER NOT NULL',
    user: 'TEXT NOT NULL',
    [about]: 'TEXT NOT NULL',
    target: 'TEXT NOT NULL',
  },
  ignored: true,
});

export const tables: readonly Table[] = [
  {
    name: 'users',
    key: 1,
    columns: { name: 'TEXT NOT NULL' },
    reference: [account.user, ...users].map((name) => [name]),
  },
  { name: 'projects', key: 1, columns: { name: 'TEXT NOT NULL' }, reference: projects.map((name) => [name]) },
  { name: 'labels', key: 1, columns: { name: 'TEXT NOT NULL' }, reference: labels.map((name) => [name]) },
  {
    name: 'sprints',
    key: 1,
    columns: {
      id: 'TEXT NOT NULL',
      project: 'TEXT NOT NULL REFERENCES projects',
      name: 'TEXT NOT NULL',
      state: "TEXT NOT NULL CHECK (state IN ('pending', 'open', 'closed'))",
    },
  },
  {
    name: 'issues',
    key: 1,
    columns: {
      id: 'TEXT NOT NULL',
      project: 'TEXT NOT NULL REFERENCES projects',
      title: 'TEXT NOT NULL',
      status: "TEXT NOT NULL CHECK (status IN ('todo', 'doing', 'done'))",
      owner: 'TEXT NOT NULL REFERENCES users',
      points: 'INTEGER NOT NULL',
    },
  },
  {
    name: 'sprint_issues',
    key: 2,
    columns: { sprint: 'TEXT NOT NULL REFERENCES sprints', issue: 'TEXT NOT NULL REFERENCES issues' },
  },
  {
    name: 'issue_labels',
    key: 2,
    columns: { issue: 'TEXT NOT NULL REFERENCES issues', label: 'TEXT NOT NULL REFERENCES labels' },
  },
  {
    name: 'issue_links',
    key: 2,
    columns: {
      issue: 'TEXT NOT NULL REFERENCES issues',
      other: 'TEXT NOT NULL REFERENCES issues',
      kind: 'TEXT NOT NULL',
    },
  },
  noise('activities', 'action'),
  noise('pageviews', 'page'),
];
