import { expect, it } from 'vitest';
import { explanationOf } from '../../../src/environments/fleet/explanation.js';

const block = (which: string, list: string): string =>
  `>>> ${which}_ACCUMULATOR >>>\n${list}\n<<< ${which}_ACCUMULATOR <<<\n`;

it.each([
  [
    'a Python list',
    block('ERROR', `['no booking', "the guest's name differs"]`),
    "wrong: no booking; the guest's name differs",
  ],
  ['a JSON list', block('ERROR', '["2 rows", "say \\"no\\""]'), 'wrong: 2 rows; say "no"'],
  [
    'both lists, after other lines',
    `x\n[STDOUT] ${block('ERROR', "['a\\nb']")}y\n${block('SUCCESS', "['c']")}`,
    'wrong: a b\nright: c',
  ],
  ['two apps', block('ERROR', "['a']") + block('ERROR', "['b']"), 'wrong: a; b'],
  ['only what is right', block('ERROR', '[]') + block('SUCCESS', "['c']"), 'right: c'],
  ['no list', block('ERROR', 'lost rows'), 'wrong: lost rows'],
  ['no blocks', ' first\nsecond \n', 'first\nsecond'],
  ['nothing', '', ''],
])('%s', (_, stdout, text) => {
  expect(explanationOf(stdout)).toBe(text);
});

it('keeps the beginning of a long list and the end of long lines', () => {
  const long = explanationOf(block('ERROR', `['first${'x'.repeat(2000)}']`));
  expect(long).toHaveLength(1000);
  expect(long).toMatch(/^wrong: firstx+…$/);
  const lines = explanationOf(`${'x'.repeat(2000)}last`);
  expect(lines).toHaveLength(1000);
  expect(lines).toMatch(/^…x+last$/);
  const many = Array.from({ length: 50 }, (_, n) => `line ${n}`).join('\n');
  expect(explanationOf(many).split('\n')).toHaveLength(10);
});
