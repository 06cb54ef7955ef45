// The ticket office: holds expire while the agent calls, and each task is a chain of five or more calls. A small policy fails at it.
import type { App } from '../app.js';
import { account, artists, codes, friends, tables, today } from './tables.js';
import { templates } from './templates.js';
import { tools } from './tools.js';

const ids =
  (prefix: string): App['samples'][string] =>
  (draw) =>
    draw.opaqueId(prefix);

export const tickets: App = {
  name: 'tickets',
  tables,
  tools: tools.map(({ spec }) => spec),
  handlers: new Map(tools.map(({ spec, handler }) => [spec.name, handler])),
  templates,
  variables: { CURRENT_DATE: today, LOGGED_IN_USER: account.user, LOGGED_IN_NAME: account.name },
  samples: {
    id: ids('EVT'),
    event: ids('EVT'),
    section: ids('SEC'),
    seat: ids('SEA'),
    second: ids('SEA'),
    hold: ids('HLD'),
    order: ids('ORD'),
    ticket: ids('TKT'),
    card: ids('CRD'),
    query: (draw) => draw.pick(artists),
    code: (draw) => draw.pick(Object.keys(codes)),
    to: (draw) => draw.pick(friends),
    page: (draw) => 1 + draw.below(3),
  },
  drilled: ['seat', 'hold', 'order', 'card', 'query', 'to'],
};
