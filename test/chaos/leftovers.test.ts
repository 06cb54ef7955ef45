// The search for secrets in what a run has written.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type ObjectStore } from '../../src/store/object-store.js';
import { openStore } from '../../src/store/open-store.js';
import { gradingTokenOf, placesWithSecrets } from './leftovers.js';

let folder: string;
let store: ObjectStore;
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'longhaul-leftovers-'));
  mkdirSync(join(folder, 'logs'));
  writeFileSync(join(folder, 'grading-token'), 'the token of the stack\n');
  store = await openStore(`dir:${join(folder, 'store')}`);
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

test("a stack's own grading token is found wherever it is but in the file that it was given in", async () => {
  const { texts, givenIn } = gradingTokenOf(folder);
  expect(texts).toEqual(['the token of the stack']);
  expect(await placesWithSecrets({ folder, store, givenIn }, texts)).toEqual([]);
  writeFileSync(join(folder, 'logs', 'node.log'), 'sent the token of the stack');
  expect(await placesWithSecrets({ folder, store, givenIn }, texts)).toEqual(['logs/node.log']);
});

test('a search for nothing is refused: it would find nothing anywhere', async () => {
  for (const secrets of [[], ['']])
    await expect(placesWithSecrets({ folder, store, givenIn: [] }, secrets)).rejects.toThrow(
      'there is no secret to search for',
    );
});
