// Measures the report of a long run: the size of its page, the time to make it, and how soon a browser shows it.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { accessSync } from 'node:fs';
import { mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { openStore } from '../../src/store/open-store.js';
import { type Measured, median, type PartValues } from '../figures/figure.js';
import { repository } from '../repository.js';
import { recordLongRun } from './report-run.js';

const makerDeadlineMs = 10 * 60_000;
const browserDeadlineMs = 30_000;
const openings = 5;

export async function measureReport(): Promise<Measured> {
  const folder = await mkdtemp(join(tmpdir(), 'longhaul-bench-report-'));
  try {
    const address = `dir:${join(folder, 'store')}`;
    const run = await recordLongRun(await openStore(address));
    const page = join(folder, 'report.html');
    const made = await makeReport(run, address, page);
    const { opened, notes } = await openInBrowser(page);
    return { values: { ...made, ...opened }, notes };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Makes the page with the real command, in a separate process. */
async function makeReport(run: string, store: string, page: string): Promise<PartValues> {
  const main = join(repository, 'dist/dev/src/cli/main.js');
  const begun = performance.now();
  const maker = spawn(process.execPath, [main, 'report', run, '--store', store, '-o', page, '--json'], {
    stdio: ['ignore', 'ignore', 'pipe'],
    timeout: makerDeadlineMs,
  });
  let said = '';
  maker.stderr.on('data', (chunk: Buffer) => (said += chunk.toString()));
  const [code] = (await once(maker, 'exit')) as [number | null];
  if (code !== 0) throw new Error(`longhaul report ended with ${code}: ${said.slice(-400).trim()}`);
  const seconds = (performance.now() - begun) / 1_000;
  const transcripts = page.replace(/\.html$/, '.transcripts');
  const files = await readdir(transcripts).catch(() => []);
  const sizes = await Promise.all(files.map(async (name) => (await stat(join(transcripts, name))).size));
  return {
    page_mb: (await stat(page)).size / 1e6,
    transcripts_mb: sizes.reduce((sum, size) => sum + size, 0) / 1e6,
    files: files.length,
    make_seconds: seconds,
  };
}

/** Medians over several openings of the page from disk, each in a new browser context. */
async function openInBrowser(page: string): Promise<{ opened: PartValues; notes: string[] }> {
  const executablePath = [
    process.env['LONGHAUL_CHROMIUM'],
    '/usr/bin/chromium',
    '/usr/bin/google-chrome',
  ].find(isThere);
  if (executablePath === undefined)
    return {
      opened: {},
      notes: ['no browser on this machine (chromium, or LONGHAUL_CHROMIUM): the page was not opened'],
    };
  const { chromium } = await import('playwright-core');
  const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'] });
  try {
    const listed: number[] = [];
    let transcripts = 0;
    for (let opening = 0; opening < openings; opening++) {
      const context = await browser.newContext();
      const tab = await context.newPage();
      tab.setDefaultTimeout(browserDeadlineMs);
      const begun = performance.now();
      await tab.goto(pathToFileURL(page).href);
      await tab.locator('.found-list .entry').first().waitFor();
      listed.push(performance.now() - begun);
      await tab.locator('select[name=in]').selectOption('');
      transcripts = Number(
        /[\d,]+/.exec(await tab.locator('.found').innerText())?.[0].replaceAll(',', '') ?? 0,
      );
      await context.close();
    }
    if (transcripts === 0) throw new Error('the page lists no transcripts');
    return { opened: { open_ms: median(listed), transcripts }, notes: [] };
  } finally {
    await browser.close();
  }
}

function isThere(path: string | undefined): path is string {
  try {
    accessSync(path ?? '');
    return path !== undefined && path !== '';
  } catch {
    return false;
  }
}
