// The mailbox's tables, and the names and values from which its databases are generated.
import type { Table } from '../table.js';

export const account = { user: 'sam', name: 'Sam Weber' };
export const today = '2026-04-15';

export const contacts = [
  'nadia', 'oscar', 'kofi', 'isaac', 'julia', 'edgar', 'karin', 'jorge', 'liam', 'rafael', 'igor', 'paula',
] as const; // prettier-ignore
/** Folders to which a task may move a message. */
export const folders = ['billing', 'booking', 'calendar', 'export', 'gallery', 'signup'] as const;
export const allFolders = ['inbox', ...folders, 'archive', 'trash'] as const;
export const labels = ['urgent', 'question', 'family', 'pending', 'medium', 'low'] as const;
export const topics = [
  'hotel', 'room', 'milestone', 'dashboard', 'scheduler', 'router', 'sidebar', 'webhook', 'tablet', 'editor', 'city', 'installer',
] as const; // prettier-ignore
export const things = [
  'date', 'price', 'note', 'change', 'typo', 'outage', 'crash', 'view', 'leak', 'level',
] as const; // prettier-ignore
export const replies = [
  'confirmed',
  'not open',
  'more time',
  'please close',
  'the price is high',
  'see the note',
] as const;

export const tables: readonly Table[] = [
  {
    name: 'contacts',
    key: 1,
    columns: { name: 'TEXT NOT NULL', address: 'TEXT NOT NULL' },
    reference: contacts.map((name) => [name, `${name}@mail.example`]),
  },
  {
    name: 'folders',
    key: 1,
    columns: { name: 'TEXT NOT NULL' },
    reference: allFolders.map((name) => [name]),
  },
  { name: 'labels', key: 1, columns: { name: 'TEXT NOT NULL' }, reference: labels.map((name) => [name]) },
  {
    name: 'messages',
    key: 1,
    columns: {
      id: 'TEXT NOT NULL',
      folder: 'TEXT NOT NULL REFERENCES folders',
      sender: 'TEXT NOT NULL REFERENCES contacts',
      subject: 'TEXT NOT NULL',
      text: 'TEXT NOT NULL',
      read: 'INTEGER NOT NULL',
      starred: 'INTEGER NOT NULL',
    },
  },
  {
    name: 'message_labels',
    key: 2,
    columns: { message: 'TEXT NOT NULL REFERENCES messages', label: 'TEXT NOT NULL REFERENCES labels' },
  },
  {
    name: 'sent',
    key: 2,
    columns: {
      message: 'TEXT NOT NULL REFERENCES messages',
      position: 'INTEGER NOT NULL',
      receiver: 'TEXT NOT NULL REFERENCES contacts',
      text: 'TEXT NOT NULL',
    },
  },
  {
    name: 'activity_log',
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
