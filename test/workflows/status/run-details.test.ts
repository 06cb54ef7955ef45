// The live text of a run in the Temporal UI: what a person must find there, and which input must not break it.
import { describe, expect, it } from 'vitest';
import type { RunOutline, RunStatus } from '../../../src/activities/contracts.js';
import { shownAs } from '../../../src/cli/train/start-training.js';
import { readSpecFile } from '../../../src/spec/spec-input.js';
import { noControl } from '../../../src/workflows/run/control-desk.js';
import { detailsOf } from '../../../src/workflows/status/run-details.js';
import { outlineOf } from '../scripted-run.js';

const now = Date.UTC(2030, 0, 2, 3, 0);
const outline: RunOutline = outlineOf('crm', { project: 'sales', model: 'qwen3-0.6b' });

const training: RunStatus = {
  run: 'crm',
  phase: 'collecting',
  step: 30,
  totalSteps: 40,
  trainingPhase: 'grpo',
  owner: 2,
  node: 'gpu-1',
  sharingNodes: ['gpu-2'],
  waitsFor: null,
  state: null,
  control: noControl,
  budget: [{ name: 'max_tokens', limit: 2000, spent: 1500 }],
  blocked: null,
  evaluations: [
    { step: 10, suite: 'interval', pass_at_1: 0.4, graded: 40 },
    { step: 20, suite: 'interval', pass_at_1: 0.61, graded: 40 },
  ],
  recent: [{ step: 30, kind: 'grpo', seconds: 60, metrics: { 'reward/avg_raw_reward': 0.5 } }],
  rewards: [0.1, 0.5],
  outcomes: { graded: 990, unknown: 10, last: { step: 30, graded: 255, unknown: 1 } },
  lastCheckpoint: 28,
  tokens: 84_210,
  sampleSeconds: 10,
  report: null,
};

const of = (changes: Partial<RunStatus> = {}): string =>
  detailsOf({ ...training, ...changes }, { outline, checkpointTrouble: null, now }).replaceAll('\u00a0', ' ');

/** The cells of the row that begins with `name`. */
function row(text: string, name: string): string[] {
  const line = text.split('\n').find((one) => one.startsWith(`| ${name}`)) ?? '';
  return line
    .split('|')
    .slice(1, -1)
    .map((cell) => cell.trim());
}

describe('the live text of a run', () => {
  it('names the places where the run is followed, if there are any', () => {
    const followed_in = ['W&B team/sales/crm', 'Slack #runs|x'];
    const text = detailsOf(training, { outline: { ...outline, followed_in }, checkpointTrouble: null, now });
    expect(text).toContain('- followed in W&B team/sales/crm, Slack #runs\\|x\n');
    expect(of()).not.toContain('followed');
  });

  it('lists facts with a long word below the table', () => {
    const unknown_reason = 'http://127.0.0.1:8002/tools/a_very_long_name_of_a_tool does not answer';
    const last = { step: 30, graded: 255, unknown: 1, unknown_reason };
    const host = 'gpu_node_with_a_long_name_in_rack_17';
    const text = of({ node: host, outcomes: { graded: 990, unknown: 10, last } });
    expect(row(text, 'node')).toEqual([]);
    expect(row(text, 'most of them')).toEqual([]);
    expect(text).toContain(`|\n\n- most of them: ${unknown_reason}\n- node: ${host}, gpu-2 · owner 2\n`);
    expect(row(text, 'last checkpoint')).toEqual(['last checkpoint', 'step 28']);
  });

  it('keeps short facts and dates on one line', () => {
    const text = detailsOf(training, { outline, checkpointTrouble: null, now });
    expect(text).toContain(
      '| **30**\u00a0of\u00a040 · ends\u00a0about\u00a002\u00a0Jan\u00a003:10\u00a0UTC |',
    );
  });

  it('ends no sentence or clause with code: the UI would show the mark apart', async () => {
    expect(shownAs(await readSpecFile('presets/tiny.yaml')).staticDetails).not.toMatch(/\w`[.,;:)]/);
    for (const phase of ['collecting', 'paused', 'blocked', 'completed', 'stopped'] as const)
      expect(of({ phase, report: 'sales/crm/report.html' })).not.toMatch(/\w`[.,;:)]/);
  });

  it('is a table of the run’s position, its quality and its use of limits', () => {
    const text = of();
    expect(row(text, 'run')).toEqual(['run', '**crm** · qwen3-0.6b · sales']);
    expect(row(text, 'phase')).toEqual(['phase', '**collecting** · grpo']);
    expect(row(text, 'step')).toEqual(['step', '**30** of 40 · ends about 02 Jan 03:10 UTC']);
    expect(row(text, 'pass@1')).toEqual([
      'pass@1',
      '**61.0 %** at step 20 · ▁█ · +21.0 points since step 10',
    ]);
    expect(row(text, 'reward')).toEqual(['reward', '**0.50** at step 30 · ▁█']);
    expect(row(text, 'last step')).toEqual(['last step', '60.0 s · 8,421 tokens/s']);
    expect(row(text, 'unknown')).toEqual(['unknown outcomes', '1 of 256 at step 30 · 10 of 1,000 in all']);
    expect(row(text, 'node')).toEqual(['node', 'gpu-1, gpu-2 · owner 2']);
    expect(row(text, 'last checkpoint')).toEqual(['last checkpoint', 'step 28']);
    expect(row(text, 'budget')).toEqual(['budget.max_tokens', '1,500 of 2,000 · 75 %']);
  });

  it('has rows of equal length, even if a name could end a cell', () => {
    const text = detailsOf(training, {
      outline: { ...outline, model: 'a|b\nc' },
      checkpointTrouble: 'x | y',
      now,
    });
    const rows = text.split('\n').filter((line) => line.startsWith('|'));
    for (const line of rows) expect(line.match(/(?<!\\)\|/g), line).toHaveLength(3);
  });

  it('gives the exact commands of both command lines', () => {
    const text = of();
    expect(text).toContain('`longhaul pause crm`');
    expect(text).toContain('`temporal workflow update execute -w train/crm --name pause`');
    expect(text).toContain(`--name setHyperparameters --input '{"lr": 1e-4}'`);
    expect(text).toContain(`--name stopAfter --input '{"step": 31}'`);
    expect(text).toContain('`longhaul train --run crm`');
    expect(text).toMatch(
      /`temporal workflow start --type trainingRun .* -w train\/crm .*--input-file run\.json`/,
    );
    expect(text).not.toContain('--name resume');
  });

  it('for a later timeline, names the workflow by the run’s name, and the run by its id', () => {
    const text = of({ run: 'crm~2', phase: 'paused' });
    expect(text).toContain('`longhaul resume crm~2`');
    expect(text).toContain('-w train/crm --name resume');
    expect(text).not.toContain('train/crm~2');
  });

  it('begins with what holds the run up, and how to continue', () => {
    const blocked = {
      reason: 'booking is down:\n<img src=x> [here](http://x)',
      remedy: 'Start it. Then: longhaul resume crm',
    };
    expect(of({ phase: 'blocked', blocked })).toMatch(
      /^\*\*Blocked\*\*: booking is down: · \\<img src=x> \\\[here\]\(http:\/\/x\)\n\n\*\*To fix it\*\*: Start it\. Then: longhaul resume crm\n/,
    );
    expect(of({ phase: 'paused' })).toMatch(/^\*\*Paused\.\*\* .*`longhaul resume crm`/);
    expect(of({ phase: 'placing', waitsFor: 'no node is alive' })).toMatch(
      /^\*\*Waits for a node\*\*: no node is alive\n/,
    );
  });

  it('predicts no end while the run waits, and offers no commands after it has ended', () => {
    expect(of({ phase: 'paused' })).not.toContain('ends about');
    const stopped = of({ phase: 'stopped' });
    expect(stopped).not.toContain('--name pause');
    expect(stopped).toContain('`longhaul train --run crm`');
    const completed = of({ phase: 'completed', step: 40 });
    expect(completed).toContain('`longhaul fork crm@40 --name NEW --set max_training_steps=N`');
    expect(completed).not.toContain('longhaul train --run');
  });

  it('shows no figures of an evaluation without grades', () => {
    const ungraded = { step: 30, suite: 'interval', pass_at_1: null, graded: 0 };
    const text = of({ evaluations: [...training.evaluations, ungraded] });
    expect(row(text, 'pass@1')).toEqual(['pass@1', '**–** at step 30 · ▁█']);
    expect(text).toContain('- step 30 · interval · pass@1 **–** (no outcome was graded)');
    expect(of({ evaluations: [ungraded] })).not.toContain('0.0 %');
  });

  it('shows pass@k of an evaluation with several samples a task', () => {
    const several = { step: 30, suite: 'final', pass_at_1: 0.5, pass_at_k: { 3: 0.75 }, graded: 6 };
    expect(of({ evaluations: [several] })).toContain(
      '- step 30 · final · pass@1 **50.0 %** of 6 episodes · pass@3 **75.0 %**',
    );
  });

  it('exists before the run is opened, and does not grow with the run', () => {
    const empty = { evaluations: [], recent: [], totalSteps: 0, step: -1 };
    const first = detailsOf({ ...training, ...empty }, { outline: null, checkpointTrouble: null, now });
    expect(first).toContain('**crm**');
    const many = {
      evaluations: Array.from({ length: 60 }, (_, step) => ({
        step,
        suite: 'interval',
        pass_at_1: 0.5,
        graded: 40,
      })),
      recent: Array.from({ length: 20 }, (_, step) => ({ step, kind: 'grpo', seconds: 1, metrics: {} })),
      rewards: Array.from({ length: 40 }, () => 0.5),
    };
    expect(Buffer.byteLength(of(many))).toBeLessThan(3500);
  });
});
