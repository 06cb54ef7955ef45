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
  const [top = '', ...below] = path.split('.');
  const [title, key] = below.length === 0 ? ['The run', top] : [`\`${top}\``, below.join('.')];
  const [, section = ''] = page.split(`\n## ${title}\n`);
  const rows = (section.split('\n## ')[0] ?? '')
    .split('\n')
    .filter((line) => line.startsWith(`- \`${key.replaceAll('[]', '')}\` (`));
  expect(rows).toHaveLength(1);
  expect(rows[0]?.split('): ').at(-1)).toMatch(/\w{2,}/);
});
