// The presets' warm starts train on these files, so that each of their bytes decides the bits of the quickstart, `tiny` and `suite`.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { sha256Hex } from '../../../src/base/sha256.js';
import { ownFolder } from '../../support/scratch-folder.js';

test('the presets always get the same demonstrations', { timeout: 120_000 }, async () => {
  const folder = ownFolder();
  process.argv[2] = folder;
  await import('../../../examples/apps/demonstrations-main.js');
  const names = ['quickstart', 'tiny', 'suite'];
  expect(names.map((name) => [name, sha256Hex(readFileSync(join(folder, `${name}.jsonl`)))])).toEqual([
    ['quickstart', '9e42a6bb34bc929d45fb4239b926ff7e6663cb49203a8642565b867ca44d9e52'],
    ['tiny', 'd31ccfb57efa908a8cef21db962fb916411b647b6e317063037450dc67f45afd'],
    ['suite', '2be91f94b19d50a4eef5b3a5a661beb3fd390af25628b87ec9e2b6696070cb89'],
  ]);
});
