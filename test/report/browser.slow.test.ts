// The report in a real browser: its content, on light, dark and narrow screens and on paper.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Browser, BrowserContextOptions, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readChanges } from '../../src/report/history/changes.js';
import { faultsOf, readAttempts } from '../../src/report/history/faults.js';
import { renderReport } from '../../src/report/html-report.js';
import { readHistory, type RunHistory } from '../../src/report/history/run-history.js';
import { browserPath, launchBrowser } from '../support/browser.js';
import { callOf, failed, passed, readEpisodes, recordEvaluated, recordTrained } from './recorded-episodes.js';
import { recordedRun, until } from './recorded-run.js';

describe.skipIf(browserPath === '')('the report in a browser (chromium, or LONGHAUL_CHROMIUM)', () => {
  const folder = mkdtempSync(join(tmpdir(), 'longhaul-browser-'));
  const files = {
    complete: join(folder, 'report.html'),
    begun: join(folder, 'begun.html'),
    partial: join(folder, 'partial.html'),
    long: join(folder, 'long.html'),
  };
  let browser: Browser;

  beforeAll(async () => {
    const store = await recordedRun();
    const history = await readHistory(store, 'tiny');
    const done = { says: '<done>' };
    const close = {
      says: callOf('close_issue', { id: 'ISS-1' }),
      tool: 'close_issue',
      answer: 'Tool result:\n{"ok":true}',
    };
    const said = [
      { request: 'Close it.', turns: [done], outcome: failed },
      { request: 'Close it.', turns: [close, done], outcome: passed },
    ];
    await recordEvaluated(store, history, said);
    await recordTrained(store, 'tiny', 9, [said]);
    await recordTrained(store, 'tiny', 29, [said]);
    const attempts = await readAttempts(store, history);
    const faults = faultsOf(history, attempts);
    const changes = await readChanges(store, history);
    const write = async (report: keyof typeof files, of: RunHistory): Promise<void> => {
      const episodes = await readEpisodes(store, of);
      const html = renderReport({ history: of, faults, changes, episodes });
      expect(html.length).toBeLessThan(1_000_000);
      writeFileSync(files[report], html);
    };
    await write('complete', history);
    await write('partial', until(history, 30));
    await write('begun', until(history, 2));
    await write('long', inDays(history));
    browser = await launchBrowser();
  });
  afterAll(async () => {
    await browser?.close();
    rmSync(folder, { recursive: true });
  });

  async function withPage<T>(
    options: BrowserContextOptions,
    use: (page: Page) => Promise<T>,
    report: keyof typeof files = 'complete',
  ): Promise<T> {
    const page = await browser.newPage(options);
    const troubles: string[] = [];
    page.on('pageerror', (error) => troubles.push(error.message));
    page.on('request', (request) => {
      if (!request.url().startsWith('file:')) troubles.push(`it asks for ${request.url()}`);
    });
    try {
      await page.goto(pathToFileURL(files[report]).href);
      const result = await use(page);
      expect(troubles).toEqual([]);
      return result;
    } finally {
      await page.close();
    }
  }

  test('shows the figures of the records, and requests nothing from a network', async () => {
    await withPage({}, async (page) => {
      expect(await page.title()).toBe('tiny · Longhaul report');
      expect(await page.locator('.tile').first().innerText()).toMatch(/37\.5 %\s*→\s*62\.5 %/);
      const tracker = page.locator('tr', { hasText: 'tracker' }).first();
      expect(await tracker.innerText()).toMatch(/25\.0 %\s+75\.0 % ± 4\.3\s+\+50\.0\s+improving/);
      const regimes = page.locator('.tile', { hasText: 'environments by regime' });
      expect(await regimes.innerText()).toMatch(/1 improving\s+1 too few episodes/);
      expect(await page.getByText('lr = 0.01').count()).toBe(1);
      expect(await page.locator('.tile', { hasText: 'faults on record' }).innerText()).toMatch(/\d/);
    });
  });

  test('says that the run has ended', async () => {
    await withPage({}, async (page) => {
      expect(await page.locator('header').innerText()).toContain('completed at step 42');
      expect(await page.locator('.tile').first().innerText()).toContain('before → after GRPO');
      expect(await page.locator('.legend').innerText()).toContain('before GRPO and after (205 tasks)');
      expect(await page.getByRole('columnheader', { name: 'final' }).count()).toBe(1);
      expect(await page.getByRole('rowheader', { name: 'final state' }).count()).toBe(1);
    });
  });

  test('says how far an unfinished run has come, and which evaluations it compares so far', async () => {
    await withPage(
      {},
      async (page) => {
        expect(await page.locator('header').innerText()).toContain('unfinished: step 30 of at most 42');
        expect(await page.locator('.tile').first().innerText()).toContain('before GRPO → so far');
        const legend = await page.locator('.legend').innerText();
        expect(legend).toContain('at intervals (85 tasks)');
        expect(legend).toContain('before GRPO (205 tasks) and so far (85 tasks)');
        expect(await page.locator('.chart-wide svg.chart circle.final').count()).toBe(2);
        expect(await page.getByRole('columnheader', { name: 'newest' }).count()).toBe(1);
        expect(await page.getByRole('rowheader', { name: 'newest state' }).count()).toBe(1);
        expect(await page.getByText('final state').count()).toBe(0);
      },
      'partial',
    );
  });

  test('draws a single small chart no wider than one of several', async () => {
    await withPage(
      { viewport: { width: 1366, height: 768 } },
      async (page) => {
        expect(await page.locator('.trends figure').count()).toBe(1);
        expect((await page.locator('.trends figure').boundingBox())?.width).toBeLessThan(340);
      },
      'begun',
    );
  });

  test.each([390, 700, 1366])('keeps long figures within their tiles, at %d pixels', async (width) => {
    await withPage(
      { viewport: { width, height: 768 } },
      async (page) => {
        const tiles = await page.locator('.tile .value').all();
        expect(await page.locator('.tiles').innerText()).toContain('47 h 59 min');
        for (const tile of tiles) {
          const [needed, given] = await tile.evaluate((value) => [value.scrollWidth, value.clientWidth]);
          expect(needed, await tile.innerText()).toBeLessThanOrEqual(given as number);
        }
      },
      'long',
    );
  });

  test('says how episodes went, with links to the counted transcripts', async () => {
    await withPage({}, async (page) => {
      const newest = page.locator('tr', { hasText: 'newest' }).first();
      expect(await newest.innerText()).toMatch(/tracker\s+newest\s+2\s+1\.5 · 1 · 2/);
      await newest.getByRole('link', { name: '50.0 %' }).first().click();
      await page.getByText('1 transcript', { exact: true }).waitFor();
      expect(await page.locator('.entry').innerText()).toContain('premature done');
      expect(await page.locator('figure', { hasText: 'premature done' }).count()).toBe(1);
    });
  });

  test.each([390, 1100])('fits a window of %d pixels', async (width) => {
    await withPage({ viewport: { width, height: 800 } }, async (page) => {
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(width);
      // Without scrolling sideways a reader sees everything, except the folded steps.
      for (const part of await page.locator('.scroll, .chart-wide, .chart-narrow, .tile').all()) {
        if (!(await part.isVisible())) continue;
        const [needed, given] = await part.evaluate((one) => [one.scrollWidth, one.clientWidth]);
        expect(needed, await part.innerText()).toBeLessThanOrEqual(given as number);
      }
      expect(await page.locator('svg.chart:visible').first().getAttribute('viewBox')).toBe(
        width < 640 ? '0 0 390 280' : '0 0 900 320',
      );
    });
  });

  test('is dark if the reader prefers it, but never on paper', async () => {
    await withPage({ colorScheme: 'dark' }, async (page) => {
      const background = (): Promise<unknown> =>
        page.evaluate('getComputedStyle(document.body).backgroundColor');
      expect(await background()).toBe('rgb(18, 22, 29)');
      await page.emulateMedia({ media: 'print' });
      expect(await background()).toBe('rgb(255, 255, 255)');
      expect(await page.locator('.filters').isVisible()).toBe(false);
      expect(await page.locator('summary').first().isVisible()).toBe(false);
      expect(await page.locator('h2', { hasText: 'Trajectories' }).isVisible()).toBe(true);
      expect((await page.pdf({ format: 'A4' })).length).toBeGreaterThan(10_000);
    });
  });
});

/** The same run with the longest figures that its tiles must fit. */
function inDays(history: RunHistory): RunHistory {
  const last = history.updates.at(-1)!;
  const started = Date.parse(history.record.observed.started_at);
  const committed_at = new Date(started + (48 * 60 - 1) * 60_000).toISOString();
  const outcomes = [Array.from({ length: 1_234_567 }, () => 1)];
  const many = {
    ...last,
    identity: { ...last.identity, outcomes },
    observed: { ...last.observed, committed_at },
  };
  return { ...history, updates: [...history.updates.slice(0, -1), many] };
}
