// Temporary folders for tests, which are deleted when the tests have ended.
import { mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, onTestFinished } from 'vitest';

/** A folder for all tests of a file or of a `describe`. */
export function scratchFolder(): string {
  const folder = newFolder();
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** A folder for the current test. */
export function ownFolder(): string {
  const folder = newFolder();
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

const newFolder = (): string => mkdtempSync(join(realpathSync(tmpdir()), 'longhaul-'));
