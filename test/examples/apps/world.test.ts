import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type TaskTemplate, ToolError } from '../../../examples/apps/app.js';
import { describeDifference, sameContent } from '../../../examples/apps/difference.js';
import { Draw } from '../../../examples/apps/random.js';
import { appByName } from '../../../examples/apps/registry.js';
import { formatTaskKey, oracle, scenarioOf } from '../../../examples/apps/task-key.js';
import { openWorld, World } from '../../../examples/apps/world.js';
import { answer, apps, inWorld, play, rowsOf } from './play.js';

const trackerKey = 'tracker/assign_issue/000001';
const bookingKey = 'booking/cancel_booking/000001';

describe('arguments', () => {
  it.each([
    ['close_issue', {}, 'missing argument id'],
    ['close_issue', { id: 'ISS-2222', force: true }, 'unknown argument force'],
    ['close_issue', { id: 7 }, 'id must be a string'],
    ['close_issue', { id: ' ' }, 'id must not be empty'],
    ['set_priority', { id: 'ISS-2222', level: 'huge' }, 'level must be one of low, medium, high, urgent'],
    ['list_issues', { state: 'open', limit: 0 }, 'limit must be between 1 and 50'],
    ['list_issues', { state: 'open', page: 1.5 }, 'page must be an integer'],
    ['close_issue', [], 'arguments must be an object'],
    ['close_issue', null, 'arguments must be an object'],
    ['delete_everything', {}, 'unknown tool delete_everything'],
    ['assign_issue', { id: 'ISS-2222', user: 'zed' }, 'no user zed'],
    ['close_issue', { id: 'ISS-0000' }, '404 no issue ISS-0000'],
  ])('%s(%j) answers %s', (name, args, error) => {
    inWorld(trackerKey, (world) => {
      const result = world.call({ name, arguments: args as Record<string, unknown> });
      expect(result).toEqual({ text: JSON.stringify({ error }), isError: true });
    });
  });

  it.each([
    ['change_date', { date: 'May 32' }, 'date must be a day such as May 12'],
    ['change_date', { date: '2026-05-12' }, 'date must be a day such as May 12'],
    ['change_room', { room: 'cave' }, 'room must be one of single, double, twin, suite, studio, family'],
    ['change_nights', { nights: '3' }, 'nights must be an integer'],
    ['change_guest', { guest: 'nobody' }, 'no guest nobody'],
  ])('%s(%j) answers %s', (name, args, error) => {
    inWorld(bookingKey, (world) => {
      const id = oracle(bookingKey)[0]?.arguments.id;
      expect(answer(world, name, { id, ...args })).toEqual({ error });
    });
  });

  it('that name unknown rows are answered with 404, by every tool', () => {
    let answered = 0;
    for (const app of apps) {
      const [template] = app.templates;
      inWorld(formatTaskKey(app, template as TaskTemplate, 1), (world) => {
        for (const { name, input_schema: schema } of app.tools) {
          const pairs = (schema.required ?? []).map((key) => {
            const [, prefix] = /such as ([A-Z]{3})-/.exec(schema.properties[key]?.description ?? '') ?? [];
            // No drawn id has a 0.
            const value = prefix === undefined ? app.samples[key]?.(new Draw(key)) : `${prefix}-0000`;
            return [key, value] as const;
          });
          if (!pairs.some(([, value]) => String(value).endsWith('-0000'))) continue;
          expect(answer(world, name, Object.fromEntries(pairs)).error, name).toMatch(
            /^404 no \w+ [A-Z]{3}-0000/,
          );
          answered++;
        }
      });
    }
    expect(answered).toBeGreaterThan(40);
  });

  it('of any kind never make a call throw, and an error changes nothing', () => {
    for (const app of apps) {
      const [template] = app.templates;
      const key = formatTaskKey(app, template as TaskTemplate, 1);
      const ids = scenarioOf(key).scenario.rows;
      const known = Object.values(ids).flatMap((rows) => rows.slice(0, 3).flat());
      const value = fc.oneof(
        fc.constantFrom(...known),
        fc.string(),
        fc.integer({ min: -2, max: 60 }),
        fc.jsonValue(),
      );
      inWorld(key, (world) => {
        const call = fc.constantFrom(...app.tools).chain((spec) => {
          const names = Object.keys(spec.input_schema.properties);
          const args = fc.oneof(
            fc.record(Object.fromEntries(names.map((name) => [name, value])), { requiredKeys: [] }),
            fc.dictionary(fc.string(), value),
            fc.jsonValue(),
          );
          return fc.record({ name: fc.oneof(fc.constant(spec.name), fc.string()), arguments: args });
        });
        fc.assert(
          fc.property(call, ({ name, arguments: args }) => {
            const before = [...world.dump()];
            const result = world.call({ name, arguments: args as Record<string, unknown> });
            if (!result.isError) return;
            expect(Object.keys(JSON.parse(result.text) as object)).toEqual(['error']);
            expect([...world.dump()]).toEqual(before);
          }),
          { numRuns: 400, seed: 11 },
        );
      });
    }
  });
});

describe('permissions', () => {
  it("refuse changes to another team's issues and to locked issues with 403", () => {
    const refusals = Array.from({ length: 10 }, (_, i) => `tracker/close_issue/00010${i}`).flatMap((key) =>
      inWorld(key, (world) =>
        rowsOf(world, 'issues')
          .filter(({ repository }) => repository === 'vault' || repository === 'payroll')
          .map(({ id, repository }) => {
            expect(answer(world, 'get_issue', { id }).id).toBe(id);
            return [answer(world, 'close_issue', { id }).error, `403 no access to ${String(repository)}`];
          }),
      ),
    );
    expect(refusals.length).toBeGreaterThan(5);
    for (const [error, wanted] of refusals) expect(error).toBe(wanted);

    inWorld(trackerKey, (world) => {
      const id = oracle(trackerKey)[0]?.arguments.id;
      expect(answer(world, 'lock_issue', { id })).toEqual({ ok: true });
      expect(answer(world, 'close_issue', { id })).toEqual({ error: `403 ${String(id)} is locked` });
    });
  });

  it("refuse changes to another agency's bookings with 403, and to closed hotels with 409", () => {
    const seen = new Set<unknown>();
    for (let i = 0; i < 10; i++) {
      inWorld(`booking/check_in/00020${i}`, (world) => {
        for (const { id, agency } of rowsOf(world, 'bookings')) {
          if (agency === 'house') continue;
          const { error } = answer(world, 'cancel_booking', { id });
          expect(error).toBe(`403 no access to bookings of ${String(agency)}`);
          seen.add(403);
        }
        for (const { id, open } of rowsOf(world, 'hotels')) {
          if (open === 1) continue;
          expect(answer(world, 'rate_hotel', { hotel: id, stars: 3 }).error).toBe(
            `409 ${String(id)} is closed`,
          );
          seen.add(409);
        }
      });
    }
    expect(seen).toEqual(new Set([403, 409]));
  });
});

describe('listing', () => {
  it.each([
    [trackerKey, 'list_issues', 'issues', { state: 'open' }],
    [bookingKey, 'list_bookings', 'bookings', { status: 'confirmed' }],
  ] as const)('of %s gives every row once, page by page, with the total', (key, tool, name, filter) => {
    inWorld(key, (world) => {
      const all = rowsOf(world, name).filter((row) => Object.entries(filter).every(([k, v]) => row[k] === v));
      const ids: unknown[] = [];
      for (let page = 1; ; page++) {
        const result = answer(world, tool, { ...filter, page, limit: 2 });
        expect(result.total).toBe(all.length);
        const rows = result[name] as { id: unknown }[];
        if (rows.length === 0) break;
        expect(rows.length).toBeLessThanOrEqual(2);
        ids.push(...rows.map(({ id }) => id));
      }
      expect(ids).toEqual(all.map(({ id }) => id));
    });
  });

  it('searches give the total only if there are several pages', () => {
    inWorld(trackerKey, (world) => {
      for (let i = 0; i < 4; i++) answer(world, 'create_issue', { title: 'walrus gone', label: 'docs' });
      const first = answer(world, 'search_issues', { query: 'walrus' });
      const second = answer(world, 'search_issues', { query: 'Walrus gone', page: 2 });
      expect([first.issues, second.issues].map((rows) => (rows as unknown[]).length)).toEqual([3, 1]);
      expect([first.total, second.total]).toEqual([4, 4]);
      expect(answer(world, 'search_issues', { query: 'zebra' })).toEqual({ issues: [] });
    });
  });
});

describe('grading', () => {
  it('ignores the audit log', () => {
    const [call] = oracle(trackerKey);
    if (!call) throw new Error('the oracle makes a call');
    const { grade, dump } = play(trackerKey, [call, call]);
    expect(dump.audit_log).not.toBe(play(trackerKey, [call]).dump.audit_log);
    expect(grade.value).toBe(1);
  });

  it('ignores which ids tools made, and compares the contents of their rows', () => {
    const tracker = appByName('tracker');
    const { rows } = scenarioOf(trackerKey).scenario;
    const created = (titles: string[]) =>
      inWorld(trackerKey, (world) => {
        for (const title of titles) answer(world, 'create_issue', { title, label: title.split(' ')[0] });
        return world.dump();
      });
    const [there, back, other] = [
      created(['docs lag', 'server leak']),
      created(['server leak', 'docs lag']),
      created(['docs lag', 'server lag']),
    ];
    expect(there.get('issues')).not.toBe(back.get('issues'));
    expect(sameContent(tracker, rows, there, back)).toBe(true);
    expect(sameContent(tracker, rows, there, other)).toBe(false);
    expect(describeDifference(tracker, rows, there, other)).toContain(
      'title is "server leak", should be "server lag"',
    );
  });

  it('says which rows differ', () => {
    const [call] = oracle(trackerKey);
    const { id, user } = call?.arguments ?? {};
    expect(play(trackerKey, []).grade.explanation).toMatch(
      new RegExp(`^issues ${String(id)}: assignee is "\\w+", should be "${String(user)}"$`),
    );
  });
});

describe('a world', () => {
  it('starts untouched after another episode of the same task', () => {
    const before = play(bookingKey, []).dump;
    play(bookingKey, [
      ...oracle(bookingKey),
      { name: 'rate_hotel', arguments: { hotel: 'HTL-2222', stars: 2 } },
    ]);
    expect(play(bookingKey, []).dump).toEqual(before);
  });

  it('does not affect other open worlds', () => {
    const [one, two] = [openWorld(bookingKey), openWorld(bookingKey)];
    try {
      for (const call of oracle(bookingKey)) one.call(call);
      expect([one.grade().value, two.grade().value]).toEqual([1, 0]);
    } finally {
      one.close();
      two.close();
    }
  });

  it('undoes all of a call that fails half-way, even because of a bug', () => {
    const { address, scenario } = scenarioOf(trackerKey);
    for (const failure of [new ToolError(409, 'too late'), new Error('a defect')]) {
      const handlers = new Map(address.app.handlers);
      handlers.set('close_issue', {
        writes: true,
        run: ({ db }) => {
          db.run("UPDATE issues SET state = 'closed'");
          db.run('DELETE FROM issue_labels');
          throw failure;
        },
      });
      const world = new World({ ...address, app: { ...address.app, handlers } }, scenario);
      try {
        const before = [...world.dump()];
        const call = () => world.call({ name: 'close_issue', arguments: { id: 'ISS-2222' } });
        if (failure instanceof ToolError) expect(call().isError).toBe(true);
        else expect(call).toThrow('a defect');
        expect([...world.dump()]).toEqual(before);
      } finally {
        world.close();
      }
    }
  });

  it('can be closed twice, and then refuses calls', () => {
    const world = openWorld(bookingKey);
    world.close();
    world.close();
    expect(() => world.call({ name: 'check_in', arguments: {} })).toThrow(/world of booking\/.* is closed/);
  });

  it.each([
    ['tracker', /not of the form app\/template\/000123/],
    ['chat/close_issue/000001', /no example app "chat"; there are tracker, booking, mail/],
    ['tracker/tall/close_issue/000001', /not of the form app\/template\/000123/],
    ['tracker/nap/000001', /tracker has no template nap; it has close_issue/],
  ])('of key %s is refused', (key, message) => {
    expect(() => openWorld(key)).toThrow(message);
  });
});
