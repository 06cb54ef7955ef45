import { expect, test } from 'vitest';
import { resampledText, whyNotResample } from '../../../src/cli/control/resume-resampled.js';
import { longhaul } from '../../support/command-line.js';

const phases = [
  'starting',
  'placing',
  'evaluating',
  'planning',
  'collecting',
  'updating',
  'reporting',
] as const;

test.each(phases)('a run that is %s is not resampled: the refusal says how to pause it', (phase) => {
  expect(whyNotResample('demo', { phase, blocked: null }, { folder: '/data/stack' })).toBe(
    'demo is neither paused nor blocked, so its step may be sampling: first `longhaul pause demo --now --folder /data/stack`, ' +
      'wait until `longhaul status demo --folder /data/stack` says that it is paused, then give the command again',
  );
});

test('a paused or blocked run is resampled', () => {
  expect(whyNotResample('demo', { phase: 'paused', blocked: null })).toBeNull();
  expect(whyNotResample('demo', { phase: 'blocked', blocked: { reason: 'r', remedy: 'm' } })).toBeNull();
});

test.each([
  [
    { kind: 'discarded', step: 3, control: 4, episodes: 17 },
    'demo continues, and samples step 3 again: its 17 finished episodes are set aside, and the bytes are kept (control record 4)',
  ],
  [
    { kind: 'discarded', step: 3, control: 4, episodes: 1 },
    'demo continues, and samples step 3 again: its one finished episode is set aside, and the bytes are kept (control record 4)',
  ],
  [
    { kind: 'discarded', step: 3, control: 4, episodes: 0 },
    'demo continues, and samples step 3 again: it had no finished episode, and its turns so far are not continued (control record 4)',
  ],
  [
    { kind: 'nothing', why: 'step 3 of demo is supervised: there is nothing to sample again' },
    'nothing to discard: step 3 of demo is supervised: there is nothing to sample again. demo continues',
  ],
] as const)('the answer to %o', (resampling, text) => {
  expect(resampledText('demo', resampling)).toBe(text);
});

test('a store is named only for a resample', async () => {
  const { code, errors } = await longhaul([
    'resume',
    'demo',
    '--store',
    'dir:/nowhere',
    '--temporal-address',
    '127.0.0.1:1',
  ]);
  expect(code).toBe(2);
  expect(errors).toContain('--store is for --resample');
});
