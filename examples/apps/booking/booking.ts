// The booking desk: hotels in a dozen cities, and bookings, some of which belong to other agencies.
import type { App } from '../app.js';
import { drawDay } from './scene.js';
import { account, cities, guests, rooms, statuses, tables, today, wishes } from './tables.js';
import { templates } from './templates.js';
import { tools } from './tools.js';

export const booking: App = {
  name: 'booking',
  tables,
  tools: tools.map(({ spec }) => spec),
  handlers: new Map(tools.map(({ spec, handler }) => [spec.name, handler])),
  templates,
  variables: { CURRENT_DATE: today, LOGGED_IN_USER: account.user, LOGGED_IN_NAME: account.name },
  samples: {
    id: (draw) => draw.opaqueId('BKG'),
    hotel: (draw) => draw.opaqueId('HTL'),
    guest: (draw) => draw.pick(guests),
    city: (draw) => draw.pick(cities),
    room: (draw) => draw.pick(rooms),
    date: (draw) => drawDay(draw),
    nights: (draw) => 1 + draw.below(7),
    note: (draw) => draw.pick(wishes),
    stars: (draw) => 1 + draw.below(5),
    status: (draw) => draw.pick(statuses),
    page: (draw) => 1 + draw.below(3),
    limit: (draw) => 1 + draw.below(9),
  },
  drilled: ['hotel', 'city', 'room', 'date', 'nights', 'note'],
};
