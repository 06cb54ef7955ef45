// The report in a real browser: what it says there, in light, dark, narrow and on paper.
import { accessSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { chromium, type Browser, type BrowserContextOptions, type Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readChanges } from '../../src/report/changes.js';
import { renderReport } from '../../src/report/html-report.js';
import { readAttempts, restartsOf } from '../../src/report/restarts.js';
import { readHistory } from '../../src/report/run-history.js';
import { toTranscript } from '../../src/report/transcripts.js';
import { decodeWith, episodeOf, recordedRun } from './recorded-run.js';

const browserPath =
  [process.env['LONGHAUL_CHROMIUM'], '/usr/bin/chromium', '/usr/bin/google-chrome'].find(isThere) ?? '';
const hostile = '<script>document.title = "broken"</script>';

describe.skipIf(browserPath === '')('the report in a browser (chromium, or LONGHAUL_CHROMIUM)', () => {
  const folder = mkdtempSync(join(tmpdir(), 'longhaul-browser-'));
  const file = join(folder, 'report.html');
  let browser: Browser;

  beforeAll(async () => {
    const store = await recordedRun();
    const history = await readHistory(store, 'tiny');
    const call = '{"name":"close_issue","arguments":{"id":"ISS-1"}}';
    const transcripts = [
      toTranscript(
        episodeOf('tracker/close/1', { status: 'graded', value: 0 }),
        decodeWith(hostile, call, hostile),
      ),
      toTranscript(
        episodeOf('tracker/close/2', { status: 'graded', value: 1 }),
        decodeWith('Close it.', call, 'Tool result:\n{"ok":true}'),
      ),
    ];
    const html = renderReport({
      history,
      restarts: restartsOf(history, await readAttempts(store, history)),
      changes: await readChanges(store, history),
      transcripts,
      transcriptsOf: history.evaluations.at(-1) ?? null,
    });
    writeFileSync(file, html);
    expect(html.length).toBeLessThan(1_000_000);
    browser = await chromium.launch({
      executablePath: browserPath,
      args: [
        '--no-sandbox',
        '--disable-gpu',
        '--disable-background-networking',
        '--disable-component-update',
      ],
    });
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

  test('says what the records say, and asks nobody for anything', async () => {
    await withPage({}, async (page) => {
      expect(await page.title()).toBe('tiny · Longhaul report');
      expect(await page.locator('.tile').first().innerText()).toMatch(/37\.5 %\s*→\s*62\.5 %/);
      const tracker = page.locator('tr', { hasText: 'tracker' }).first();
      expect(await tracker.innerText()).toMatch(/25\.0 %\s+75\.0 % ± 4\.3\s+\+50\.0\s+improving/);
      expect(await page.getByText('lr = 0.01').count()).toBe(1);
      expect(await page.locator('tr', { hasText: 'node worker' }).innerText()).toMatch(/30/);
    });
  });

  test('opens an episode as a conversation in which markup is text', async () => {
    await withPage({}, async (page) => {
      const failure = page.locator('.transcript').first();
      expect(await failure.locator('.talk').isVisible()).toBe(false);
      await failure.locator('> summary').click();
      const talk = await failure.locator('.talk').innerText();
      expect(talk).toContain('close_issue(id="ISS-1")');
      expect(talk).toContain(hostile);
      expect(await page.title()).not.toBe('broken');
    });
  });

  test.each([390, 1100])('fits a window of %d pixels', async (width) => {
    await withPage({ viewport: { width, height: 800 } }, async (page) => {
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(width);
    });
  });

  test('is dark where the reader wants it, and never on paper', async () => {
    await withPage({ colorScheme: 'dark' }, async (page) => {
      const background = (): Promise<unknown> =>
        page.evaluate('getComputedStyle(document.body).backgroundColor');
      expect(await background()).toBe('rgb(18, 22, 29)');
      await page.emulateMedia({ media: 'print' });
      expect(await background()).toBe('rgb(255, 255, 255)');
      expect((await page.pdf({ format: 'A4' })).length).toBeGreaterThan(10_000);
    });
  });
});

function isThere(path: string | undefined): path is string {
  try {
    accessSync(path ?? '');
    return path !== undefined && path !== '';
  } catch {
    return false;
  }
}
