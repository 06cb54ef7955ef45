// The mailbox's tools. A message in the trash can only be read.
import type { ToolContext } from '../app.js';
import { ToolError } from '../app.js';
import { listPage, pageParameter as page, searchPage } from '../paging.js';
import { Draw } from '../random.js';
import type { Cell } from '../table.js';
import { hasWords } from '../text-search.js';
import { type Tool, tool } from '../tool.js';
import { allFolders, contacts, replies, things, topics } from './tables.js';

const done = { ok: true };
const id = { type: 'string', description: 'Message id, such as MSG-7Q2K' } as const;
const text = { type: 'string', description: 'The text' } as const;

/** Messages that a thread of a wide world quotes: its output has more than 10,000 characters. */
const quotedMessages = 90;

export const tools: readonly Tool[] = [
  tool({
    name: 'find_mail',
    description: 'Find messages whose subject has all words of the query.',
    writes: false,
    parameters: { query: { type: 'string', description: 'Words of the subject' }, page },
    run: ({ db, profile }, args) => {
      const { where, values } = hasWords('subject', args.query);
      const matches = db.all(`SELECT id, subject FROM messages WHERE ${where} ORDER BY id`, ...values);
      return searchPage(profile, 'mail', matches, args.page);
    },
  }),
  tool({
    name: 'list_mail',
    description: 'List the messages of a folder, a page at a time, with the total.',
    writes: false,
    parameters: { folder: { type: 'string', description: 'Folder', enum: allFolders }, page },
    run: ({ db, profile }, args) => {
      const rows = db.all('SELECT id, subject FROM messages WHERE folder = ? ORDER BY id', args.folder);
      return listPage(profile, 'mail', rows, args.page);
    },
  }),
  tool({
    name: 'open_mail',
    description: 'Show everything about a message.',
    writes: false,
    parameters: { id },
    run: ({ db, profile }, args) => {
      const message = db.get(
        'SELECT id, sender, subject, text, folder, read, starred FROM messages WHERE id = ?',
        args.id,
      );
      if (!message) throw notFound(args.id);
      const own = db.all('SELECT label FROM message_labels WHERE message = ? ORDER BY label', args.id);
      const { read, starred, ...shown } = message;
      return {
        ...shown,
        ...{ read: read === 1, starred: starred === 1, labels: own.map(({ label }) => label) },
        ...(profile === 'wide' ? { thread: threadOf(args.id) } : {}),
      };
    },
  }),
  tool({
    name: 'archive_mail',
    description: 'Move a message to the archive.',
    writes: true,
    parameters: { id },
    run: (context, args) => setColumn(context, 'archive', args.id, 'folder', 'archive'),
  }),
  tool({
    name: 'delete_mail',
    description: 'Move a message to the trash.',
    writes: true,
    parameters: { id },
    run: (context, args) => setColumn(context, 'delete', args.id, 'folder', 'trash'),
  }),
  tool({
    name: 'move_mail',
    description: 'Move a message to a folder.',
    writes: true,
    parameters: { id, folder: { type: 'string', description: 'Folder', enum: allFolders } },
    run: (context, args) => setColumn(context, 'move', args.id, 'folder', args.folder),
  }),
  tool({
    name: 'star_mail',
    description: 'Put a star on a message.',
    writes: true,
    parameters: { id },
    run: (context, args) => setColumn(context, 'star', args.id, 'starred', 1),
  }),
  tool({
    name: 'unstar_mail',
    description: 'Take the star off a message.',
    writes: true,
    parameters: { id },
    run: (context, args) => setColumn(context, 'unstar', args.id, 'starred', 0),
  }),
  tool({
    name: 'mark_read',
    description: 'Mark a message as read.',
    writes: true,
    parameters: { id },
    run: (context, args) => setColumn(context, 'read', args.id, 'read', 1),
  }),
  tool({
    name: 'mark_unread',
    description: 'Mark a message as not read.',
    writes: true,
    parameters: { id },
    run: (context, args) => setColumn(context, 'unread', args.id, 'read', 0),
  }),
  tool({
    name: 'label_mail',
    description: 'Put a label on a message.',
    writes: true,
    parameters: { id, label: { type: 'string', description: 'Label' } },
    run: (context, args) => {
      if (!context.db.get('SELECT 1 FROM labels WHERE name = ?', args.label))
        throw new ToolError(422, `no label ${args.label}`);
      mustBeChangeable(context, args.id);
      context.db.run('INSERT INTO message_labels VALUES (?, ?) ON CONFLICT DO NOTHING', args.id, args.label);
      return logged(context, 'label', args.id);
    },
  }),
  tool({
    name: 'reply_mail',
    description: 'Reply to the sender of a message.',
    writes: true,
    parameters: { id, text },
    run: (context, args) => send(context, args.id, mustBeChangeable(context, args.id), args.text),
  }),
  tool({
    name: 'forward_mail',
    description: 'Forward a message to a contact.',
    writes: true,
    parameters: { id, to: { type: 'string', description: 'Contact' } },
    run: (context, args) => {
      if (!context.db.get('SELECT 1 FROM contacts WHERE name = ?', args.to))
        throw new ToolError(422, `no contact ${args.to}`);
      mustBeChangeable(context, args.id);
      return send(context, args.id, args.to, 'forwarded');
    },
  }),
];

function send(context: ToolContext, message: string, receiver: string, words: string): object {
  context.db.run(
    `INSERT INTO sent SELECT ?, coalesce(max(position), 0) + 1, ?, ? FROM sent WHERE message = ?`,
    message,
    receiver,
    words,
    message,
  );
  return logged(context, 'send', message);
}

function setColumn(
  context: ToolContext,
  action: string,
  message: string,
  column: string,
  value: Cell,
): object {
  mustBeChangeable(context, message);
  context.db.run(`UPDATE messages SET ${column} = ? WHERE id = ?`, value, message);
  return logged(context, action, message);
}

/** The sender of a message that is not in the trash. */
function mustBeChangeable({ db }: ToolContext, message: string): string {
  const row = db.get('SELECT folder, sender FROM messages WHERE id = ?', message);
  if (!row) throw notFound(message);
  if (row.folder === 'trash') throw new ToolError(409, `${message} is in the trash`);
  return String(row.sender);
}

function notFound(message: string): ToolError {
  return new ToolError(404, `no message ${message}`);
}

// Not stored: the thread is a function of the id, and a world has tens of messages.
function threadOf(message: string): object[] {
  const draw = new Draw(`${message}/thread`);
  return Array.from({ length: quotedMessages }, () => ({
    writer: draw.pick(contacts),
    text: Array.from(
      { length: 4 },
      () => `${draw.pick(topics)} ${draw.pick(things)}: ${draw.pick(replies)}`,
    ).join('. '),
  }));
}

function logged({ db, user, today }: ToolContext, action: string, target: string): object {
  db.run(
    'INSERT INTO activity_log SELECT coalesce(max(position), 0) + 1, ?, ?, ?, ? FROM activity_log',
    user,
    action,
    target,
    today,
  );
  return done;
}
