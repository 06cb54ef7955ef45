// The mailbox: short, easy tasks, which a small policy soon solves.
import type { App } from '../app.js';
import { account, allFolders, contacts, labels, replies, tables, things, today, topics } from './tables.js';
import { templates } from './templates.js';
import { tools } from './tools.js';

export const mail: App = {
  name: 'mail',
  tables,
  tools: tools.map(({ spec }) => spec),
  handlers: new Map(tools.map(({ spec, handler }) => [spec.name, handler])),
  templates,
  variables: { CURRENT_DATE: today, LOGGED_IN_USER: account.user, LOGGED_IN_NAME: account.name },
  samples: {
    id: (draw) => draw.opaqueId('MSG'),
    query: (draw) => `${draw.pick(topics)} ${draw.pick(things)}`,
    folder: (draw) => draw.pick(allFolders),
    label: (draw) => draw.pick(labels),
    text: (draw) => draw.pick(replies),
    to: (draw) => draw.pick(contacts),
    page: (draw) => 1 + draw.below(3),
  },
  drilled: ['query', 'folder', 'label', 'text', 'to'],
  // Its demonstrations are almost always right.
  teacherSkill: { tool: 0.98, argument: 0.98, row: 0.98, branch: 0.98, flow: 0.98, answer: 0.98 },
};
