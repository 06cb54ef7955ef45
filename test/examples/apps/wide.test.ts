// Wide worlds have pages, near-duplicates and long outputs, as real services do.
import { describe, expect, it } from 'vitest';
import { oracle, scenarioOf } from '../../../examples/apps/task-key.js';
import { answer, inWorld } from './play.js';

/** For each app: a task that searches, the search's rows, and a call with a long output. */
const cases = [
  ['tracker/wide/close_found', 'issues', 'get_issue', 'id'],
  ['booking/wide/rate_found', 'hotels', 'search_hotels', 'city'],
  ['mail/wide/archive_found', 'mail', 'open_mail', 'id'],
  ['sprints/wide/unplan_found', 'issues', 'view_sprint', 'sprint'],
  ['tickets/wide/buy_first', 'events', 'list_seats', 'section'],
] as const;

const keysOf = (kind: string) => Array.from({ length: 10 }, (_, i) => `${kind}/00${1000 + i}`);

describe.each(cases)('%s', (kind, rows, long, argument) => {
  it('has an output of more than 10,000 characters', () => {
    for (const key of keysOf(kind)) {
      inWorld(key, (world) => {
        const calls = oracle(key);
        for (const call of calls) world.call(call);
        const value = calls.flatMap((call) => call.arguments[argument] ?? []);
        const { text } = world.call({ name: long, arguments: { [argument]: value.at(-1) } });
        expect(text.length, key).toBeGreaterThan(10_000);
      });
    }
  });

  it('shows search results by pages, each row once, with the total and the next page', () => {
    let pages = 0;
    for (const key of keysOf(kind)) {
      inWorld(key, (world) => {
        const [search] = oracle(key);
        if (!search) throw new Error('the oracle searches');
        const seen: unknown[] = [];
        for (let page: unknown = 1; page !== undefined; pages++) {
          const result = answer(world, search.name, { ...search.arguments, page });
          const shown = result[rows] as { id: string }[];
          seen.push(...shown.map(({ id }) => id));
          expect(shown.length).toBeLessThanOrEqual(20);
          if (result.next === undefined) expect(seen).toHaveLength(result.total as number);
          else
            expect([shown.length, result.next]).toEqual([shown.length < 20 ? 10 : 20, (page as number) + 1]);
          page = result.next;
        }
        expect(new Set(seen).size).toBe(seen.length);
        expect(seen.length, key).toBeGreaterThan(5);
      });
    }
    if (kind.startsWith('booking')) expect(pages).toBeGreaterThan(10);
  });
});

it('wide and default worlds of one number are different, and keys without a profile are default', () => {
  for (const [kind] of cases) {
    const size = (key: string) => JSON.stringify(scenarioOf(key).scenario.rows).length;
    expect(size(`${kind}/000001`)).toBeGreaterThan(3 * size(`${kind.replace('/wide', '')}/000001`));
  }
});
