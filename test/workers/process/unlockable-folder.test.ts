// A folder whose lock cannot be written because its disk is full is waited for; other failures need a person.
import { expect, it } from 'vitest';
import { isNoSpace } from '../../../src/store/record-errors.js';
import { unlockable } from '../../../src/workers/process/folder-lock.js';

it('a full disk is named as such, and counts as one', () => {
  const error = unlockable('/srv/lock.sqlite', 'SQLITE_FULL', 'database or disk is full');
  expect(error.message).toMatch(/^no space for \/srv\/lock\.sqlite: free some space/);
  expect(isNoSpace(error)).toBe(true);
});

it('a folder without write permission does not count as full', () => {
  const error = unlockable('/srv/lock.sqlite', 'SQLITE_READONLY', 'attempt to write a readonly database');
  expect(error.message).toMatch(/cannot be locked: attempt to write .*; make the folder writable/);
  expect(isNoSpace(error)).toBe(false);
});
