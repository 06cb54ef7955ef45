// A sweep's comparison in a real browser: light, dark, in a narrow window, on paper, and without colour.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Browser, BrowserContextOptions, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { SweepComparison } from '../../src/sweeps/comparison.js';
import { renderComparison } from '../../src/sweeps/comparison-page.js';
import { browserPath, launchBrowser } from '../support/browser.js';
import { compareStates, madeUpState, madeUpSuite } from './made-up.js';

const hostile = '<script>document.title = "broken"</script>';

/** Two runs over several steps, a suite of two environments, a suite with one sample per task, and a checkpoint that is left out. */
function nightly(): SweepComparison {
  const wide = madeUpSuite('held-out', ['tracker', 'booking'], 120, 4);
  const states = [
    madeUpState(wide, { run: 'quickstart', step: 0, shift: { tracker: -2, booking: -2.5 } }),
    ...[20, 40, 60, 80, 100].map((step, index) =>
      madeUpState(wide, {
        run: 'quickstart',
        step,
        shift: { tracker: -2 + index * 0.9, booking: -2.4 + index * 0.6 },
        unknown: index === 2 ? 0.05 : 0,
      }),
    ),
    ...[20, 40, 60].map((step, index) =>
      madeUpState(wide, {
        run: 'lr-high',
        step,
        shift: { tracker: -1.5 - index * 1.6, booking: -2.2 - index },
      }),
    ),
  ];
  const single = madeUpSuite('final', ['tracker', 'booking'], 64, 1);
  const finals = [0, 100].map((step, index) =>
    madeUpState(single, {
      run: 'quickstart',
      step,
      shift: { tracker: -2 + index * 3, booking: -1 + index * 2 },
    }),
  );
  const cut = madeUpState(single, { run: 'lr-high', step: 60, shift: {}, unplayed: 20 });
  return {
    name: 'nightly',
    project: 'longhaul',
    suites: [
      compareStates(wide, states, { state: states[0]!.state, regression: 0.05 }),
      compareStates(single, [...finals, cut], null),
    ],
    skipped: [{ run: 'lr-high', step: 80, reason: `its file ${hostile} is missing` }],
  };
}

describe.skipIf(browserPath === '')('a sweep’s page in a browser (chromium, or LONGHAUL_CHROMIUM)', () => {
  const folder = mkdtempSync(join(tmpdir(), 'longhaul-sweep-page-'));
  const file = join(folder, 'sweep.html');
  let browser: Browser;

  beforeAll(async () => {
    const html = renderComparison(nightly());
    expect(html.length).toBeLessThan(500_000);
    writeFileSync(file, html);
    browser = await launchBrowser();
  });
  afterAll(async () => {
    await browser?.close();
    rmSync(folder, { recursive: true });
  });

  async function withPage<T>(options: BrowserContextOptions, use: (page: Page) => Promise<T>): Promise<T> {
    const page = await browser.newPage(options);
    const troubles: string[] = [];
    page.on('pageerror', (error) => troubles.push(error.message));
    page.on('request', (request) => {
      if (!request.url().startsWith('file:')) troubles.push(`it asks for ${request.url()}`);
    });
    try {
      await page.goto(pathToFileURL(file).href);
      const result = await use(page);
      expect(troubles).toEqual([]);
      return result;
    } finally {
      await page.close();
    }
  }

  test('says everything in words and signs, not by colour alone', async () => {
    await withPage({}, async (page) => {
      expect(await page.title()).toBe('nightly · Longhaul sweep');
      const last = page.locator('tr', { hasText: 'quickstart@100' }).first();
      expect(await last.innerText()).toMatch(/\+\d+\.\d \[\+\d+\.\d, \+\d+\.\d\]\s+▲ improving/);
      expect(await page.locator('.alarm', { hasText: 'lr-high@60' }).innerText()).toMatch(
        /▼ Regression\. lr-high@60 is significantly worse than the baseline, by more than 5\.0 points, on all tasks/,
      );
      expect(await page.locator('tr', { hasText: 'quickstart@0' }).first().innerText()).toContain('baseline');
      expect(await last.locator('svg').getAttribute('aria-label')).toMatch(/points, 95 % interval/);
      expect(await last.locator('svg circle').getAttribute('class')).toBe('full');
      expect(await page.getByText('20 not played').count()).toBeGreaterThan(0);
    });
  });

  test('shows all columns in a wide window', async () => {
    await withPage({ viewport: { width: 1280, height: 800 } }, async (page) => {
      for (const summary of await page.locator('details > summary').all()) await summary.click();
      for (const box of await page.locator('.scroll').all()) {
        const [needed, given] = await box.evaluate((one) => [one.scrollWidth, one.clientWidth]);
        expect(needed, await box.innerText()).toBeLessThanOrEqual(given as number);
      }
    });
  });

  test('shows a name’s markup as text', async () => {
    await withPage({}, async (page) => {
      expect(await page.locator('li').innerText()).toContain(hostile);
      expect(await page.title()).not.toBe('broken');
    });
  });

  test('opens tasks that changed', async () => {
    await withPage({}, async (page) => {
      const tasks = page.locator('details', { hasText: 'quickstart@100 by task: ' }).first();
      await tasks.locator('summary').click();
      expect(await tasks.locator('tbody tr').first().innerText()).toMatch(/0\/4\s+4\/4\s+2\.9 %/);
    });
  });

  test.each([390, 1100])('fits a window of %d pixels', async (width) => {
    await withPage({ viewport: { width, height: 800 } }, async (page) => {
      for (const summary of await page.locator('details > summary').all()) await summary.click();
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(width);
    });
  });

  test('is dark if the reader prefers that, and complete on paper', async () => {
    const background = 'getComputedStyle(document.body).backgroundColor';
    const light = await withPage({ colorScheme: 'light' }, (page) => page.evaluate(background));
    const dark = await withPage({ colorScheme: 'dark' }, (page) => page.evaluate(background));
    expect(dark).not.toBe(light);
    await withPage({ colorScheme: 'dark' }, async (page) => {
      await page.emulateMedia({ media: 'print', colorScheme: 'dark' });
      expect(await page.evaluate(background)).toBe(light);
      expect(await page.getByText('by chance').first().isVisible()).toBe(true);
    });
  });

  test.runIf(process.env['LONGHAUL_SCREENSHOTS'])(
    'writes screenshots into the folder LONGHAUL_SCREENSHOTS',
    async () => {
      const shots = process.env['LONGHAUL_SCREENSHOTS'] as string;
      mkdirSync(shots, { recursive: true });
      for (const colorScheme of ['light', 'dark'] as const) {
        for (const width of [1280, 390]) {
          await withPage({ colorScheme, viewport: { width, height: 900 } }, async (page) => {
            await page.screenshot({ path: join(shots, `sweep-${colorScheme}-${width}.png`), fullPage: true });
            for (const summary of await page.locator('details > summary').all()) await summary.click();
            await page.screenshot({
              path: join(shots, `sweep-${colorScheme}-${width}-open.png`),
              fullPage: true,
            });
          });
        }
      }
      await withPage({}, async (page) => {
        await page.emulateMedia({ media: 'print' });
        await page.screenshot({ path: join(shots, 'sweep-print.png'), fullPage: true });
      });
    },
  );
});

test('folds more than 40 states, and shows other places of a state beside it', () => {
  const suite = madeUpSuite('held-out', ['tracker', 'booking'], 30, 2);
  const states = ['tiny', 'own1'].flatMap((run) =>
    Array.from({ length: 30 }, (_, step) =>
      madeUpState(suite, { run, step, shift: { tracker: step / 20, booking: 0 } }),
    ),
  );
  const also = [{ run: 'own1', step: 2 }];
  const [first, ...others] = states;
  const compared = compareStates(suite, [{ ...first!, also }, ...others], {
    state: first!.state,
    regression: 0.05,
  });
  const html = renderComparison({ name: 'n', project: 'p', suites: [compared], skipped: [] });
  expect(html).toContain('compared with tiny@0, the baseline');
  expect(html).toContain('also own1@2');
  const unfolded = html.replace(/<details.*?<\/details>/gs, '');
  expect(unfolded.match(/<tr>/g)?.length).toBeLessThanOrEqual(41);
  expect(unfolded).toContain('tiny@29');
  expect(html).toContain('all 60 states');
  // One chart with both runs, and one for each run, all with the same range of steps.
  expect(unfolded.match(/polyline class="line run[01]"/g)).toHaveLength(4);
});

test('a sweep’s page never contains a name as markup', () => {
  const suite = madeUpSuite(hostile, [hostile, 'other'], 60, 8);
  const states = [-4, 4].map((shift, step) =>
    madeUpState(suite, { run: hostile, step, shift: { [hostile]: shift, other: shift } }),
  );
  const html = renderComparison({
    name: hostile,
    project: hostile,
    suites: [compareStates(suite, states, { state: states[1]!.state, regression: 0.05 })],
    skipped: [{ run: hostile, step: null, reason: hostile }],
  });
  expect(html).toContain('better');
  expect(html).not.toContain(hostile);
});
