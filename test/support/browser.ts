// A real browser for tests of pages: Debian's chromium, or the one that LONGHAUL_CHROMIUM names.
import { accessSync } from 'node:fs';
import { chromium, type Browser } from 'playwright-core';

/** Path of the browser; empty if there is none. */
export const browserPath =
  [process.env['LONGHAUL_CHROMIUM'], '/usr/bin/chromium', '/usr/bin/google-chrome'].find(isThere) ?? '';

export function launchBrowser(): Promise<Browser> {
  const quiet = ['--disable-gpu', '--disable-background-networking', '--disable-component-update'];
  return chromium.launch({ executablePath: browserPath, args: ['--no-sandbox', ...quiet] });
}

function isThere(path: string | undefined): path is string {
  try {
    accessSync(path ?? '');
    return path !== undefined && path !== '';
  } catch {
    return false;
  }
}
