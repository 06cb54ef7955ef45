// The sprint planner: issues, sprints and their members, in tasks of two or three calls.
import type { App } from '../app.js';
import {
  account,
  components,
  kinds,
  labels,
  problems,
  projects,
  sizes,
  statuses,
  tables,
  today,
  users,
} from './tables.js';
import { templates } from './templates.js';
import { tools } from './tools.js';

export const sprints: App = {
  name: 'sprints',
  tables,
  tools: tools.map(({ spec }) => spec),
  handlers: new Map(tools.map(({ spec, handler }) => [spec.name, handler])),
  templates,
  variables: { CURRENT_DATE: today, LOGGED_IN_USER: account.user, LOGGED_IN_NAME: account.name },
  samples: {
    id: (draw) => draw.opaqueId('ISS'),
    other: (draw) => draw.opaqueId('ISS'),
    sprint: (draw) => draw.opaqueId('SPR'),
    query: (draw) => `${draw.pick(components)} ${draw.pick(problems)}`,
    title: (draw) => `${draw.pick(components)} ${draw.pick(problems)}`,
    project: (draw) => draw.pick(projects),
    status: (draw) => draw.pick(statuses),
    points: (draw) => draw.pick(sizes),
    user: (draw) => draw.pick(users),
    label: (draw) => draw.pick(labels),
    kind: (draw) => draw.pick(kinds),
    page: (draw) => 1 + draw.below(3),
  },
  drilled: ['sprint', 'title', 'project', 'user', 'label', 'points'],
};
