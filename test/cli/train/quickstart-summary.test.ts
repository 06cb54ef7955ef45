// The last lines of quickstart say how much the policy improved.
import { expect, test } from 'vitest';
import { upWithExample } from '../../../src/cli/train/example-server.js';
import { heldOut } from '../../../src/cli/train/quickstart-command.js';

const evaluation = (step: number, suite: string, pass_at_1: number | null, graded: number) => ({
  ...{ step, suite, pass_at_1, graded },
});

test('the summary compares the final suite before GRPO with the final suite at the end', () => {
  const evaluations = [
    evaluation(24, 'final', 0.207, 256),
    evaluation(40, 'interval', 0.9, 128),
    evaluation(40, 'final', 0.887, 256),
  ];
  expect(heldOut({ evaluations })).toEqual({
    before: 0.207,
    after: 0.887,
    text: '20.7 % → 88.7 %  (256 episodes)',
  });
  expect(heldOut({ evaluations: [] })).toEqual({ before: null, after: null, text: '– → –' });
});

test.each([null, 0])('the summary has no figure if nothing was graded, recorded as %s', (rate) => {
  const evaluations = [evaluation(24, 'final', rate, 0), evaluation(40, 'final', rate, 0)];
  expect(heldOut({ evaluations })).toEqual({
    before: null,
    after: null,
    text: '– → –  (no outcome was graded)',
  });
});

test('the stack goes on with the example’s server, on which its open runs play', () => {
  expect(upWithExample('.longhaul')).toBe(
    "bin/longhaul up --folder .longhaul --environments 'node dist/examples/apps/server/main.js'",
  );
});
