// The tracker: issues in four repositories; the agent's account may change two of them.
import type { App } from '../app.js';
import {
  account,
  components,
  labels,
  milestones,
  priorities,
  problems,
  remarks,
  tables,
  today,
  users,
} from './tables.js';
import { templates } from './templates.js';
import { tools } from './tools.js';

export const tracker: App = {
  name: 'tracker',
  tables,
  tools: tools.map(({ spec }) => spec),
  handlers: new Map(tools.map(({ spec, handler }) => [spec.name, handler])),
  templates,
  variables: { CURRENT_DATE: today, LOGGED_IN_USER: account.user, LOGGED_IN_NAME: account.name },
  samples: {
    id: (draw) => draw.opaqueId('ISS'),
    query: (draw) => `${draw.pick(components)} ${draw.pick(problems)}`,
    title: (draw) => `${draw.pick(components)} ${draw.pick(problems)}`,
    user: (draw) => draw.pick(users),
    label: (draw) => draw.pick(labels),
    milestone: (draw) => draw.pick(milestones),
    level: (draw) => draw.pick(priorities),
    text: (draw) => draw.pick(remarks),
    state: (draw) => draw.pick(['open', 'closed']),
    page: (draw) => 1 + draw.below(3),
    limit: (draw) => 1 + draw.below(9),
  },
  drilled: ['title', 'user', 'label', 'milestone', 'level', 'text'],
};
