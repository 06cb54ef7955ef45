import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { runSpecSchema } from '../../src/spec/schema.js';
import { allKeyPaths } from '../../src/spec/spec-issues.js';
import { specReference } from '../../src/spec/spec-reference.js';

const page = readFileSync('docs/run-spec.md', 'utf8');

test('docs/run-spec.md says what the schema says (`npm run docs` writes it anew)', async () => {
  await expect(specReference()).toMatchFileSnapshot('../../docs/run-spec.md');
});

test.each(allKeyPaths(runSpecSchema))('the key %s is documented with a meaning', (path) => {
  const key = path.split('.').at(-1)?.replace('[]', '') ?? '';
  const rows = page.split('\n').filter((line) => line.startsWith(`| \`${key}\` |`));
  expect(rows.length).toBeGreaterThan(0);
  for (const row of rows) expect(row.split(' | ').at(-1)).toMatch(/\w{2,}/);
});
