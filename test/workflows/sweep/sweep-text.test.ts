import { describe, expect, it } from 'vitest';
import { sweepDetails, type SweepStatus } from '../../../src/workflows/sweep/sweep-messages.js';

const sweeping: SweepStatus = {
  ...{ sweep: 'crm/nightly-1', phase: 'evaluating', pairs: 40, done: 7, episodes: 2800 },
  running: [{ n: 7, run: 'crm', step: 120, suite: 'held-out', node: 'gpu-1' }],
  ...{ waitsFor: null, failed: [], report: null, alarms: [], gaps: [] },
};
const failed = Array.from({ length: 20 }, (_, n) => ({
  ...{ n, run: 'crm', step: n, suite: 'held-out', reason: 'its checkpoint is gone\n| <b>' },
}));

describe('the live text of a sweep', () => {
  it('shows its progress and its nodes, and how to end it', () => {
    const text = sweepDetails(sweeping, 'eval/crm/nightly-1');
    expect(text).toMatch(/\| evaluations\s* \| \*\*7\*\* of 40 \|/);
    expect(text).toContain('- gpu-1: crm step 120 on held-out');
    expect(text).toContain('`temporal workflow cancel -w eval/crm/nightly-1`');
  });

  it('shows what was not evaluated and why, one unbroken line each, and how to continue', () => {
    const text = sweepDetails(
      { ...sweeping, phase: 'incomplete', running: [], failed },
      'eval/crm/nightly-1',
    );
    expect(text).toContain('crm step 0 on held-out: its checkpoint is gone · \\| \\<b>');
    expect(text).toContain('- and 12 more');
    expect(text).toContain('start the sweep again under the same id');
    expect(text).not.toContain('temporal workflow cancel');
  });
});
