// The report of a long run: how large its page is, what it takes to make it, and how soon a browser shows it.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, readFileSync } from 'node:fs';
import { mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { openStore } from '../src/store/open-store.js';
import { type Measured, median, type PartValues } from './figure.js';
import { toMib } from './process-memory.js';
import { recordLongRun, type ReportRunPlan } from './report-run.js';
import { repository } from './repository.js';

/** 1,000 steps of 8 episodes, and 20 evaluations of 100. */
export const longRunPlan: ReportRunPlan = {
  steps: 1_000,
  groups: 2,
  samples: 4,
  eval_interval: 55,
  eval_tasks: 100,
};

const makerDeadlineMs = 10 * 60_000;
const browserDeadlineMs = 30_000;
const openings = 5;

export async function measureReport(plan: ReportRunPlan = longRunPlan): Promise<Measured> {
  const folder = await mkdtemp(join(tmpdir(), 'longhaul-bench-report-'));
  try {
    const address = `dir:${join(folder, 'store')}`;
    const { run } = await recordLongRun(await openStore(address), plan);
    const page = join(folder, 'report.html');
    const made = await makeReport(run, address, page);
    const { opened, notes } = await openInBrowser(page);
    return { values: { ...made, ...opened }, notes };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** By the command that people use, in a process of its own. */
async function makeReport(run: string, store: string, page: string): Promise<PartValues> {
  const main = join(repository, 'dist/dev/src/cli/main.js');
  const begun = performance.now();
  const maker = spawn(process.execPath, [main, 'report', run, '--store', store, '-o', page, '--json'], {
    stdio: ['ignore', 'ignore', 'pipe'],
    timeout: makerDeadlineMs,
  });
  let said = '';
  maker.stderr.on('data', (chunk: Buffer) => (said += chunk.toString()));
  const ended = once(maker, 'exit') as Promise<[number | null]>;
  let peak = 0;
  let isOver = false;
  void ended.then(() => (isOver = true));
  while (!isOver) {
    peak = Math.max(peak, highestResidentBytes(maker.pid ?? 0));
    await Promise.race([ended, sleep(50)]);
  }
  const [code] = await ended;
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
    make_mib: toMib(peak),
  };
}

/** Linux keeps a process' highest resident memory; 0 once it is gone. */
function highestResidentBytes(pid: number): number {
  try {
    return Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) * 1_024;
  } catch {
    return 0;
  }
}

/** Medians over several openings from the disk, each in a context of its own: until the transcripts are listed, and until one is read. */
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
    const [listed, read]: [number[], number[]] = [[], []];
    let transcripts = 0;
    for (let opening = 0; opening < openings; opening++) {
      const context = await browser.newContext();
      const tab = await context.newPage();
      tab.setDefaultTimeout(browserDeadlineMs);
      const begun = performance.now();
      await tab.goto(pathToFileURL(page).href);
      await tab.locator('.found-list .entry').first().waitFor();
      listed.push(performance.now() - begun);
      const from = tab.locator('select[name=in]');
      await from.selectOption('');
      transcripts = Number(
        /[\d,]+/.exec(await tab.locator('.found').innerText())?.[0].replaceAll(',', '') ?? 0,
      );
      await from.selectOption('training');
      const clicked = performance.now();
      await tab
        .locator('.found-list .entry')
        .nth(30 - opening)
        .click();
      await tab.locator('.opened .verdict').waitFor();
      read.push(performance.now() - clicked);
      await context.close();
    }
    if (transcripts === 0) throw new Error('the page lists no transcripts');
    return {
      opened: { open_ms: median(listed), transcript_ms: median(read), transcripts },
      notes: [],
    };
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
