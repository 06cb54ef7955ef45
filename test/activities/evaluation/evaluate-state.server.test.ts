// A state is evaluated on a suite only once, with random numbers of its own (R13).
import { describe, expect, it } from 'vitest';
import { evaluateState } from '../../../src/activities/evaluation/evaluate-state.js';
import type { NodeDeps } from '../../../src/activities/node-deps.js';
import type { SamplingKey } from '../../../src/engine/policy-engine.js';
import { recordDigest } from '../../../src/store/records/canonical.js';
import { requireRecord } from '../../../src/store/records/records.js';
import { counting, lastSftStep, run, tamper } from '../fixture.js';
import { collect, episodeAt, harness, planned, step, useGrpoStep } from '../step/grpo-step.js';

useGrpoStep();

describe('evaluateState', () => {
  const evaluate = (deps: NodeDeps, suite: 'interval' | 'final', attempt = 1) =>
    harness.attempt(
      'evaluate',
      () => evaluateState(deps, { run, owner: 1, step: lastSftStep, suite }),
      attempt,
    );

  it('plays each task only once: a second call answers from the records', async () => {
    const { deps, calls } = counting(harness.node);
    const first = await evaluate(deps, 'interval');
    expect(first).toMatchObject({ graded: 2, unknown: 0, pass_at_1: 0, suite_name: 'interval' });
    expect(calls.generate).toBe(2);
    expect(await evaluate(deps, 'interval', 2)).toEqual(first);
    const other = counting(harness.secondNode());
    expect(await evaluate(other.deps, 'interval', 3)).toEqual(first);
    expect(calls.generate + other.calls.generate).toBe(2);
  });

  it('after a kill, plays only the missing episodes', async () => {
    const { deps, calls } = counting(harness.node);
    const first = await evaluate(deps, 'final');
    const folder = `evals/${first.state}/${first.suite}/`;
    await tamper(harness.store, `${folder}result.json`, () => null);
    await tamper(harness.store, `${folder}episodes/00001.000.json.gz`, () => null);
    expect(await evaluate(deps, 'final', 2)).toEqual(first);
    expect(calls.generate).toBe(4);
  });

  it('uses its own random numbers (R13): a rollout with the same slot and sample uses other numbers', async () => {
    const keys: SamplingKey[] = [];
    const { engine } = harness.node.holder;
    const { generate } = engine;
    engine.generate = (request, signal) => {
      keys.push(request.key);
      return generate(request, signal);
    };
    await evaluate(harness.node, 'final');
    // An episode starts when its session is open, so the episodes may start in any order.
    expect(keys.splice(0).sort((a, b) => a.slot - b.slot)).toEqual(
      [0, 1, 2].map((slot) => ({ seed: 5, domain: 'eval', step: 0, slot, sample: 0 })),
    );
    await collect((await planned()).answer);
    expect(new Set(keys.map(({ domain, step: at }) => `${domain}/${at}`))).toEqual(
      new Set([`train/${step}`]),
    );

    const { tokens, prompt_length, state } = await episodeAt(0, 0);
    const sampled = async (domain: 'train' | 'eval'): Promise<number[]> => {
      const request = {
        ...{ state, tokens: tokens.slice(0, prompt_length), temperature: 1, max_new_tokens: 16 },
        ...{ key: { seed: 5, domain, step, slot: 0, sample: 0 }, stop_tokens: [] },
      };
      return (await generate(request)).tokens;
    };
    expect(await sampled('train')).toEqual(await sampled('train'));
    expect(await sampled('train')).not.toEqual(await sampled('eval'));
  });

  it('uses only held-out tasks, each with its own seed', async () => {
    const { state, suite } = await evaluate(harness.node, 'final');
    const record = await requireRecord(harness.store, `evals/${state}/${suite}/suite.json`, 'suite');
    expect(record.tasks).toHaveLength(3);
    expect(new Set(record.tasks.map(({ seed }) => seed)).size).toBe(3);
    const data = await harness.node.runs.get(run);
    for (const { task_key } of record.tasks) expect(data.taskByKey.get(task_key)?.split).toBe('held_out');
    expect(recordDigest(record)).toBe(suite);
  });
});
