// Transcripts in a real browser, on a page that is opened from a folder: search, loading, navigation and links. Their content never runs.
import { mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { faultsOf } from '../../src/report/history/faults.js';
import { renderReport } from '../../src/report/html-report.js';
import { readHistory } from '../../src/report/history/run-history.js';
import { browserPath, launchBrowser } from '../support/browser.js';
import {
  callOf,
  failed,
  passed,
  readEpisodes,
  recordEvaluated,
  recordTrained,
  type SaidEpisode,
} from './recorded-episodes.js';
import { recordedRun } from './recorded-run.js';

const hostile = [
  '<script>document.title = "broken"</script>',
  '</script><script>document.title = "broken"</script>',
  '<img src=x onerror="document.title = \'broken\'">',
  '");document.title="broken";("',
  '\u2028document.title = "broken"//',
  '<svg onload="document.title = \'broken\'">',
  '__proto__',
  '<a href="javascript:document.title=\'broken\'">x</a>',
];

describe.skipIf(browserPath === '')('transcripts in a browser (chromium, or LONGHAUL_CHROMIUM)', () => {
  const folder = mkdtempSync(join(tmpdir(), 'longhaul-transcripts-'));
  const pages = { inside: join(folder, 'inside.html'), beside: join(folder, 'beside.html') };
  let browser: Browser;

  beforeAll(async () => {
    const store = await recordedRun();
    const history = await readHistory(store, 'tiny');
    const evaluated = hostile.map((text, slot): SaidEpisode => ({
      ...{ request: `Task ${slot}: ${text}`, task_key: text, env_key: slot % 2 === 0 ? 'tracker' : text },
      outcome: slot === 3 ? { status: 'unknown', reason: text, failures: 1 } : failed,
      turns: [
        { says: text + callOf(text, { [text]: text }), tool: text, answer: `Error: ${text}`, error: true },
        { says: `${text}<done>` },
      ],
    }));
    await recordEvaluated(store, history, evaluated);
    for (const step of [5, 6, 7]) {
      const close = { says: callOf('close', { step }), tool: 'close', answer: 'Tool result:\n{"ok":true}' };
      const said: SaidEpisode = {
        request: `Close ${step}.`,
        turns: [close, { says: '<done>' }],
        outcome: passed,
      };
      await recordTrained(store, 'tiny', step, [
        [said, { ...said, turns: [close, close, { says: '<done>' }] }],
      ]);
    }
    const write = async (page: keyof typeof pages, embeddedChars: number): Promise<number> => {
      const files = new Map<string, string>();
      const episodes = await readEpisodes(store, history, files, { embeddedChars, folder: `${page} #1` });
      mkdirSync(join(folder, `${page} #1`));
      for (const [name, text] of files) writeFileSync(join(folder, `${page} #1`, `${name}.js`), text);
      const faults = faultsOf(history, []);
      writeFileSync(pages[page], renderReport({ history, faults, changes: [], episodes }));
      return files.size;
    };
    expect(await write('inside', 1_000_000)).toBe(0);
    expect(await write('beside', 0)).toBe(2);
    browser = await launchBrowser();
  });
  afterAll(async () => {
    await browser?.close();
    rmSync(folder, { recursive: true });
  });

  async function withPage(
    file: string,
    address: string,
    use: (page: Page) => Promise<void>,
    allowed: RegExp = /^$/,
  ): Promise<void> {
    const page = await browser.newPage();
    page.setDefaultTimeout(60_000);
    const troubles: string[] = [];
    page.on('pageerror', (error) => troubles.push(error.message));
    page.on('dialog', (dialog) => troubles.push(`a dialog: ${dialog.message()}`));
    page.on('console', (message) => {
      if (message.type() === 'error') troubles.push(message.text());
    });
    page.on('request', (request) => {
      if (!request.url().startsWith('file:')) troubles.push(`it asks for ${request.url()}`);
    });
    try {
      await page.goto(pathToFileURL(file).href + address);
      await use(page);
      expect(await page.title()).toBe('tiny · Longhaul report');
      expect(troubles.filter((trouble) => !allowed.test(trouble))).toEqual([]);
    } finally {
      await page.close();
    }
  }
  const opened = (page: Page) => page.locator('.opened');
  const read = (page: Page): Promise<string> => opened(page).locator('.verdict').innerText();

  test.each(['inside', 'beside'] as const)(
    'are shown as text %s the page, whatever they contain',
    async (where) => {
      await withPage(pages[where], '', async (page) => {
        expect(await page.locator('.found').innerText()).toBe('8 transcripts, failures first');
        for (const [slot, text] of hostile.entries()) {
          await page.evaluate(`location.hash = 't=final.42.${slot}.0'`);
          await opened(page)
            .locator('.request', { hasText: `Task ${slot}:` })
            .waitFor();
          expect(await read(page)).toBe(
            slot === 3 ? `Outcome: ${text}` : 'Outcome: reward 0: all rows are as they should be',
          );
          const said = (await opened(page).locator('.talk').textContent()) ?? '';
          expect(said.split(text.trim()).length).toBeGreaterThanOrEqual(6);
        }
      });
    },
  );

  test('are not loaded before somebody opens one', async () => {
    const page = await browser.newPage();
    const asked: string[] = [];
    page.on('request', (request) => asked.push(request.url()));
    await page.goto(pathToFileURL(pages.beside).href);
    await page.locator('.entry').first().waitFor();
    expect(asked).toHaveLength(1);
    await page.locator('.entry').first().click();
    await read(page);
    expect(asked).toHaveLength(2);
    expect(asked[1]).toMatch(/\/beside%20%231\/[0-9a-f]{16}\.js$/);
    await page.close();
  });

  test('can be searched by place, step, environment, outcome, trouble and task', async () => {
    await withPage(pages.beside, '', async (page) => {
      const found = async (): Promise<number> =>
        Number((await page.locator('.found').innerText()).split(' ')[0]);
      const pick = (name: string, value: string) => page.locator(`select[name=${name}]`).selectOption(value);
      await pick('in', '');
      expect(await found()).toBe(14);
      await pick('in', 'training');
      expect(await found()).toBe(6);
      await page.locator('input[name=step]').fill('6');
      expect(await found()).toBe(2);
      await pick('with', 'repeated');
      expect(await found()).toBe(1);
      expect(await page.locator('.entry').innerText()).toContain(
        'training step 6 · tracker · task-0 · sample 1',
      );
      expect(page.url()).toContain('in=training&step=6&with=repeated');
      await page.getByRole('button', { name: 'reset' }).click();
      await page.locator('.entry').nth(7).waitFor();
      await pick('outcome', 'unknown');
      expect(await found()).toBe(1);
      await pick('outcome', '');
      await pick('env', hostile[1]!);
      expect(await found()).toBe(1);
      await pick('env', '');
      await page.locator('input[name=task]').fill('ONERROR');
      expect(await found()).toBe(1);
      await page.locator('input[name=task]').fill('nothing like it');
      expect(await found()).toBe(0);
    });
  });

  test('are stepped through with next and previous, and with the browser’s back', async () => {
    await withPage(pages.beside, '#in=training', async (page) => {
      await page.locator('.entry').first().click();
      await opened(page).getByText('1 of 6').waitFor();
      expect(await opened(page).getByRole('link', { name: 'previous' }).count()).toBe(0);
      for (const at of ['2 of 6', '3 of 6']) {
        await opened(page).getByRole('link', { name: 'next' }).click();
        await opened(page).getByText(at).waitFor();
      }
      await opened(page).getByRole('link', { name: 'previous' }).click();
      await opened(page).getByText('2 of 6').waitFor();
      await page.goBack();
      await opened(page).getByText('3 of 6').waitFor();
    });
  });

  test('each has its own address', async () => {
    await withPage(pages.beside, '#t=train.6.0.1', async (page) => {
      await read(page);
      expect(await opened(page).innerText()).toContain(
        'training step 6 · tracker · task-0 · sample 1 · 3 turns · repeated call',
      );
      expect(await page.locator('.entry[aria-current]').getAttribute('data-id')).toBe('train.6.0.1');
      expect(await opened(page).getByRole('link', { name: 'link to this' }).getAttribute('href')).toBe(
        '#t=train.6.0.1',
      );
    });
    await withPage(pages.beside, '#t=train.6.9.9', async (page) => {
      expect(await page.locator('.found').innerText()).toBe(
        'There is no transcript train.6.9.9 in this report.',
      );
      expect(await opened(page).isVisible()).toBe(false);
    });
  });

  test('that are missing beside the page are reported, and are shown once they are there', async () => {
    renameSync(join(folder, 'beside #1'), join(folder, 'away'));
    const use = async (page: Page): Promise<void> => {
      const missing = await opened(page).locator('.missing').innerText();
      renameSync(join(folder, 'away'), join(folder, 'beside #1'));
      expect(missing).toMatch(/beside #1\/[0-9a-f]{16}\.js, which lies beside/);
      await page.evaluate("location.hash = 't=train.6.0.1'");
      expect(await read(page)).toBe('Outcome: reward 1: all rows are as they should be');
    };
    await withPage(pages.beside, '#t=train.6.0.0', use, /ERR_FILE_NOT_FOUND/);
  });

  test('let no code run besides the page’s own script, even if markup got into the page', async () => {
    const html = readFileSync(pages.inside, 'utf8');
    const broken = join(folder, 'broken.html');
    const markup = `${hostile[0]}${hostile[2]}${hostile[5]}<script src="evil.js"></script>`;
    writeFileSync(join(folder, 'evil.js'), 'document.title = "broken"');
    writeFileSync(broken, html.replace('<main>', `<main>${markup}`));
    const refused = /Content Security Policy|net::ERR/;
    await withPage(broken, '#t=train.6.0.1', async (page) => void (await read(page)), refused);
    // Without the content policy the same markup does run.
    writeFileSync(broken, html.replace('<main>', `<main>${markup}`).replace(/<meta http-equiv[^>]*>/, ''));
    const page = await browser.newPage();
    await page.goto(pathToFileURL(broken).href);
    expect(await page.title()).toBe('broken');
    await page.close();
  });

  test('are printed only while open, and without the controls that only a screen can use', async () => {
    await withPage(pages.beside, '#t=train.6.0.1', async (page) => {
      await read(page);
      await page.emulateMedia({ media: 'print' });
      expect(await opened(page).locator('.call').first().isVisible()).toBe(true);
      for (const part of ['.filters', '.found-list', '.walk', '.opened summary'])
        expect(await page.locator(part).first().isVisible(), part).toBe(false);
    });
  });

  test('fit a narrow window', async () => {
    await withPage(pages.beside, '#t=train.6.0.1', async (page) => {
      await page.setViewportSize({ width: 390, height: 800 });
      await read(page);
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(390);
    });
  });
});
