// Draws a mailbox around the message that a task is about.
import type { Profile } from '../app.js';
import { opaqueIds } from '../opaque-ids.js';
import type { Draw } from '../random.js';
import type { Row, WorldRows } from '../table.js';
import { idsWithWords } from '../text-search.js';
import { allFolders, contacts, folders, labels, replies, things, topics } from './tables.js';

interface SubjectOptions {
  read?: 0 | 1;
  starred?: 0 | 1;
  /** A label that no message has. */
  lacks?: string;
}

export interface Scene {
  profile: Profile;
  rows: WorldRows;
  id: string;
  subject: string;
  sender: string;
  /** Ids that a search for the words finds, in its order. */
  found(query: string): string[];
}

const otherMessages = { default: 7, wide: 70 };
/** In a wide world, some subjects differ from the task's subject by one more word. */
const additions = ['again', 'today', 'of june', 'for paula', 'on the tablet', 'without end'];

/** The task's message is in the inbox, and no other one has its subject. */
export function drawScene(draw: Draw, profile: Profile, options: SubjectOptions = {}): Scene {
  const newId = opaqueIds(draw);
  const subject = `${draw.pick(topics)} ${draw.pick(things)}`;
  const messages: Row[] = [];
  const messageLabels: Row[] = [];
  const usable = labels.filter((label) => label !== options.lacks);

  const addMessage = (title: string, folder: string, { read, starred }: SubjectOptions = {}) => {
    const id = newId('MSG');
    const sender = draw.pick(contacts);
    messages.push([
      id,
      folder,
      sender,
      title,
      draw.pick(replies),
      read ?? draw.below(2),
      starred ?? draw.below(2),
    ]);
    if (draw.chance(0.3)) messageLabels.push([id, draw.pick(usable)]);
    return { id, sender };
  };

  const own = addMessage(subject, 'inbox', options);
  const near = profile === 'wide' ? additions.map((words) => `${subject} ${words}`) : [];
  const used = new Set([subject]);
  for (let i = otherMessages[profile]; i > 0; i--) {
    let title = near.pop() ?? `${draw.pick(topics)} ${draw.pick(things)}`;
    while (used.has(title)) title = `${draw.pick(topics)} ${draw.pick(things)}`;
    used.add(title);
    addMessage(title, draw.pick(draw.chance(0.5) ? (['inbox', 'archive'] as const) : folders));
  }
  addMessage(`${draw.pick(topics)} limit`, draw.pick(allFolders));
  return {
    profile,
    rows: { messages, message_labels: messageLabels },
    id: own.id,
    subject,
    sender: own.sender,
    found: (query) => idsWithWords(messages, 3, query),
  };
}
