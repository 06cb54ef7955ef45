import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { withRecordFields } from './records-reference.js';
import { runSpecSchema } from '../../../src/spec/schema.js';
import { allKeyPaths } from '../../../src/spec/spec-issues.js';
import { specReference } from './spec-reference.js';

const page = readFileSync('docs/run-spec.md', 'utf8');

test('docs/run-spec.md matches the schema (`npm run docs` generates it)', async () => {
  await expect(specReference()).toMatchFileSnapshot('../../../docs/run-spec.md');
});

test('the fields in docs/records.md match the schemas (`npm run docs` generates them)', async () => {
  const records = readFileSync('docs/records.md', 'utf8');
  await expect(withRecordFields(records)).toMatchFileSnapshot('../../../docs/records.md');
});

test('docs/records.md has one list for each kind of record', () => {
  const records = readFileSync('docs/records.md', 'utf8');
  const mark = '<!-- generated: plan -->';
  expect(() => withRecordFields(records.replace(mark, ''))).toThrow('no block for plan');
  expect(() => withRecordFields(`${records}\n${mark}\n\n`)).toThrow('has a block "plan"');
  expect(() => withRecordFields(records.replace('longhaul.plan/4', 'longhaul.plan/3'))).toThrow(
    'does not name longhaul.plan/4',
  );
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
