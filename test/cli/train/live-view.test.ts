import { describe, expect, it } from 'vitest';
import type { RunStatus } from '../../../src/activities/contracts.js';
import { ChangingLine, LinePerStep, progressLine } from '../../../src/cli/train/live-view.js';
import { noControl } from '../../../src/workflows/run/control-desk.js';

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
  rewards: [0.5],
  lastCheckpoint: null,
  tokens: 1000,
  sampleSeconds: 10,
  report: null,
};

describe('an evaluation', () => {
  const evaluating = { ...training, phase: 'evaluating' as const };

  it('shows how many of its episodes are played', () => {
    expect(progressLine(evaluating, null, undefined, { finished: 37, of: 128 })).toMatch(
      / · evaluating: 37 of 128 episodes$/,
    );
    expect(progressLine(training, null, undefined, { finished: 1, of: 2 })).not.toContain('episodes');
  });

  it('gets a line from time to time where the output is no terminal, but only if it goes on', () => {
    const lines: string[] = [];
    let now = 0;
    const view = new LinePerStep({ write: (line: string) => lines.push(line) > 0 }, undefined, () => now);
    for (const [at, finished] of [
      [20_000, 1],
      [25_000, 2],
      [40_000, 3],
      [60_000, 3],
    ] as const) {
      now = at;
      view.show(evaluating, null, { finished, of: 8 });
    }
    expect(lines.map((line) => /\d of 8/.exec(line)?.[0])).toEqual(['1 of 8', '3 of 8']);
  });
});

describe('the progress line', () => {
  it('estimates the time to the last step', () => {
    expect(progressLine(training)).toBe(
      'step 30/40 grpo · reward 0.50 · 100 tokens/s · about 2 min 0 s left',
    );
  });

  it('includes the named folder in the suggested command, so that it can be typed', () => {
    const paused = { ...training, phase: 'paused' as const };
    expect(progressLine(paused)).toMatch(/ · paused; longhaul resume quickstart$/);
    expect(progressLine(paused, null, 'st')).toMatch(/longhaul resume quickstart --folder st$/);
    const blocked = { reason: 'booking is down', remedy: 'Start it. Then: longhaul resume quickstart' };
    expect(progressLine({ ...training, blocked }, null, 'my stack')).toMatch(
      /Then: longhaul resume quickstart --folder 'my stack'$/,
    );
  });

  it('says why a run still waits for a node', () => {
    const waitsFor = 'node local is held by train/other';
    expect(progressLine({ ...training, phase: 'placing', node: null, waitsFor })).toContain(
      `· waits for a node: ${waitsFor}`,
    );
  });

  it('names no step before the run knows its steps', () => {
    expect(progressLine({ ...training, phase: 'starting', step: -1, totalSteps: 0, recent: [] })).not.toMatch(
      /step/,
    );
  });

  it('shows no phase before the first step, and names the warm start only while it runs', () => {
    const before = { ...training, phase: 'starting' as const, step: -1, recent: [] };
    expect(progressLine(before)).toMatch(/^step 0\/40 · .*starting$/);
    const warm = [{ step: 30, kind: 'sft', seconds: 1, metrics: {} }];
    expect(progressLine({ ...training, recent: warm })).toMatch(/ · collecting$/);
    expect(progressLine({ ...training, trainingPhase: 'drill', recent: warm })).toMatch(/ · warm start$/);
  });

  it('keeps its step when the workflow continues as new', () => {
    expect(progressLine({ ...training, phase: 'starting', step: -1, totalSteps: 0 })).toMatch(/^step 30 · /);
  });

  it('predicts no end for a run whose workflow has ended', () => {
    expect(progressLine(training, 'terminated')).toMatch(/ · terminated$/);
  });
});

describe('the view in a terminal', () => {
  const before = { step: 24, suite: 'final', pass_at_1: 0.3, graded: 256 };
  const after = { step: 40, suite: 'final', pass_at_1: 0.9, graded: 256 };

  it('prints each evaluation once, above the changing line', () => {
    const { view, kept } = terminal(80);
    view.show({ ...training, evaluations: [before] }, null);
    view.show({ ...training, evaluations: [before] }, null);
    view.show({ ...training, evaluations: [before, after] }, null);
    expect(kept()).toEqual([
      'step 24 · final evaluation · pass@1 30.0 % of 256 episodes',
      'step 40 · final evaluation · pass@1 90.0 % of 256 episodes',
    ]);
  });

  it('shows no pass rate for an evaluation without a graded outcome', () => {
    const evaluations = [{ step: 24, suite: 'final', pass_at_1: null, graded: 0 }];
    const { view, kept } = terminal(80);
    view.show({ ...training, evaluations }, null);
    expect(kept()).toEqual(['step 24 · final evaluation · pass@1 – (no outcome was graded)']);
    expect(progressLine({ ...training, evaluations })).toContain(' · pass@1 – · ');
  });

  it('prints a problem in full in a narrow window, and only once however often it is retried', () => {
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

  it('prints a wait only once, however long it lasts', () => {
    const { view, kept } = terminal(40);
    const waits = (time: string, episodes: string): string =>
      `waits for step-000031/collect, try 1, for ${time}: ${episodes} for environment booking`;
    view.show(training, waits('4 s', '1 episode waits'));
    view.show(training, waits('1 min 4 s', '16 episodes wait'));
    expect(kept()).toEqual([waits('4 s', '1 episode waits')]);
  });

  it('cuts the changing line to the width of the window', () => {
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
