// `longhaul sweeps report` as a person runs it, on a store with sweeps that have ended and a sweep that has not.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, it, vi } from 'vitest';
import { runCommandLine } from '../../../src/cli/program.js';
import { comparisonKey, sweepKey } from '../../../src/store/record-keys.js';
import { openStore } from '../../../src/store/open-store.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { encodeRecord } from '../../../src/store/records/record-codec.js';
import { digestOf, recordsOfAllKinds } from '../../store/fixtures.js';

const folder = mkdtempSync(join(tmpdir(), 'longhaul-sweeps-report-'));
const storeAddress = `dir:${join(folder, 'store')}`;
let store: ObjectStore;
let printed = '';

async function ended(sweep: string, page: string | null, digit = 'a'): Promise<void> {
  await store.create(sweepKey(sweep), await encodeRecord('sweep', { ...recordsOfAllKinds().sweep, sweep }));
  if (page !== null) await store.create(comparisonKey(sweep, digestOf(digit)), Buffer.from(page));
}

beforeAll(async () => {
  store = await openStore(storeAddress);
  await ended('longhaul/nightly-2026-01-02T03.00.00Z', '<p>second night');
  await ended('longhaul/nightly-2026-01-01T03.00.00Z', '<p>first night');
  await ended('longhaul/nightly-2026-01-03T03.00.00Z', null);
  await ended('longhaul/nightly-crm-2026-01-04T03.00.00Z', '<p>of crm');
  await ended('longhaul/by-hand', null);
  await ended('crm/by-hand', '<p>by hand, before its restart', 'c');
  await new Promise((resolve) => setTimeout(resolve, 20));
  await ended('crm/by-hand', '<p>by hand', 'b');
});
afterAll(() => rmSync(folder, { recursive: true }));
afterEach(() => {
  vi.restoreAllMocks();
  process.exitCode = 0;
});

async function report(...args: string[]): Promise<{ code: number; printed: string; page: string | null }> {
  printed = '';
  for (const stream of ['log', 'error'] as const)
    vi.spyOn(console, stream).mockImplementation(
      (...what: unknown[]) => void (printed += `${what.join(' ')}\n`),
    );
  const file = join(folder, 'pages', 'page.html');
  rmSync(file, { force: true });
  const code = await runCommandLine(['sweeps', 'report', ...args, '--store', storeAddress, '-o', file]);
  try {
    return { code, printed, page: readFileSync(file, 'utf8') };
  } catch {
    return { code, printed, page: null };
  }
}

it('the command writes the newest firing that has a comparison, and ignores schedules whose longer names begin the same', async () => {
  const { code, printed, page } = await report('nightly');
  expect(printed).toBe(
    `Comparison of longhaul/nightly-2026-01-02T03.00.00Z: ${join(folder, 'pages', 'page.html')}\n`,
  );
  expect({ code, page }).toEqual({ code: 0, page: '<p>second night' });
});

it.each(['nightly-2026-01-01T03.00.00Z', 'nightly-2026-01-01T03:00:00Z'])(
  'the command accepts a firing’s name as in the store and as in Temporal: %s',
  async (name) => {
    expect((await report(name)).page).toBe('<p>first night');
  },
);

it('the command writes the last comparison of a sweep that was started again, only from the named project', async () => {
  const { printed, page } = await report('by-hand', '--project', 'crm', '--json');
  expect(page).toBe('<p>by hand');
  expect(JSON.parse(printed)).toEqual({ sweep: 'crm/by-hand', file: join(folder, 'pages', 'page.html') });
});

it.each<[string, string[], RegExp]>([
  ['a sweep that goes on', ['by-hand'], /^error: longhaul\/by-hand has no comparison yet: /],
  [
    'a sweep that does not exist',
    ['nosuch'],
    /project longhaul has no sweep "nosuch" in dir:.*: it has nightly-/,
  ],
  ['a sweep of an empty project', ['by-hand', '--project', 'none'], /: no sweep was started yet\n$/],
  [
    'text that cannot be a name',
    ['../../runs'],
    /^error: sweep "longhaul\/\.\.\/\.\.\/runs" cannot be used: /,
  ],
])('the command explains %s in one line', async (_, args, message) => {
  const { code, printed, page } = await report(...args);
  expect({ code, page }).toEqual({ code: 1, page: null });
  expect(printed).toMatch(message);
  expect(printed.trimEnd()).not.toContain('\n');
});
