import { describe, expect, it } from 'vitest';
import type { RunStatus } from '../../src/activities/contracts.js';
import { ChangingLine, progressLine } from '../../src/cli/live-view.js';
import { noControl } from '../../src/workflows/control-desk.js';

const training: RunStatus = {
  run: 'quickstart',
  phase: 'collecting',
  step: 30,
  totalSteps: 40,
  trainingPhase: 'grpo',
  owner: 1,
  node: 'local',
  sharingNodes: [],
  waitsFor: null,
  state: null,
  control: noControl,
  blocked: null,
  evaluations: [],
  recent: [{ step: 30, kind: 'grpo', seconds: 12, metrics: { 'reward/avg_raw_reward': 0.5 } }],
  lastCheckpoint: null,
  tokens: 1000,
  sampleSeconds: 10,
  report: null,
};

describe('the progress line', () => {
  it('gives the time to the last step as a bound, because a run may reach its target earlier', () => {
    expect(progressLine(training)).toBe('step 30/40 grpo · reward 0.50 · 100 tokens/s · at most 2 min 0 s');
  });

  it('says what a run waits for that has no node', () => {
    const waitsFor = 'node local is held by train/other';
    expect(progressLine({ ...training, phase: 'placing', node: null, waitsFor })).toContain(
      `· waits for a node: ${waitsFor}`,
    );
  });

  it('names no steps before the run knows them', () => {
    expect(progressLine({ ...training, phase: 'starting', step: -1, totalSteps: 0, recent: [] })).not.toMatch(
      /step/,
    );
  });
});

describe('the view in a terminal', () => {
  const before = { step: 24, suite: 'final', pass_at_1: 0.3, graded: 256 };
  const after = { step: 40, suite: 'final', pass_at_1: 0.9, graded: 256 };

  it('keeps each evaluation once above the line that changes', () => {
    const { view, kept } = terminal(80);
    view.show({ ...training, evaluations: [before] }, null);
    view.show({ ...training, evaluations: [before] }, null);
    view.show({ ...training, evaluations: [before, after] }, null);
    expect(kept()).toEqual([
      'step 24 · final evaluation · pass@1 30.0 % of 256 episodes',
      'step 40 · final evaluation · pass@1 90.0 % of 256 episodes',
    ]);
  });

  it('keeps a trouble in full where the window is narrow, once for all its tries', () => {
    const { view, kept } = terminal(40);
    view.show(
      training,
      'waits for step-000031/update, try 2: no space is left for runs/quickstart/steps/000031',
    );
    view.show(
      training,
      'waits for step-000031/update, try 3: no space is left for runs/quickstart/steps/000031',
    );
    const blocked = { reason: 'the environments do not answer', remedy: 'start them, then longhaul resume' };
    view.show({ ...training, blocked }, null);
    expect(kept()).toEqual([
      'waits for step-000031/update, try 2: no space is left for runs/quickstart/steps/000031',
      'blocked: the environments do not answer · start them, then longhaul resume',
    ]);
  });

  it('cuts the line that changes to the window', () => {
    const { view, written } = terminal(20);
    view.show(training, null);
    expect(written().at(-1)).toBe('step 30/40 grpo · r');
  });
});

function terminal(columns: number): { view: ChangingLine; kept: () => string[]; written: () => string[] } {
  let text = '';
  const write = (piece: Uint8Array | string): boolean => {
    text += String(piece);
    return true;
  };
  const written = (): string[] => text.split('\r\u001b[2K').slice(1);
  return {
    view: new ChangingLine({ write, columns }),
    written,
    kept: () => written().flatMap((piece) => (piece.endsWith('\n') ? [piece.slice(0, -1)] : [])),
  };
}
