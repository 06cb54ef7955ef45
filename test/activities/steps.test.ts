// One step through plan, collect, seal and update: each looks at the records first, and what is there is adopted (R4).
import { writeFileSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { collectRollouts } from '../../src/activities/collect-rollouts.js';
import type { PlannedStep } from '../../src/activities/contracts.js';
import { evaluateState } from '../../src/activities/evaluate-state.js';
import type { NodeDeps } from '../../src/activities/node-deps.js';
import { recordControl } from '../../src/activities/record-control.js';
import { sealBatch } from '../../src/activities/seal-batch.js';
import { updatePolicy } from '../../src/activities/update-policy.js';
import type { SamplingKey } from '../../src/engine/policy-engine.js';
import type { EnvironmentServer } from '../../src/environments/server/environment-server.js';
import type {
  AttemptRecord,
  ControlChange,
  EpisodeRecord,
  GrpoPlan,
  Outcome,
} from '../../src/spec/records.js';
import { decodeBatchFile } from '../../src/store/batch-file.js';
import { recordDigest, sha256Hex } from '../../src/store/canonical.js';
import { attemptsFolder, batchKey, episodeKey, planKey, updateKey } from '../../src/store/layout.js';
import { encodeRecord } from '../../src/store/record-codec.js';
import { readRecord, requireRecord } from '../../src/store/records.js';
import { readPlan, readState, readUpdate } from '../../src/store/run-records.js';
import {
  counting,
  type Harness,
  lastSftStep,
  run,
  startEnvironments,
  startHarness,
  tamper,
} from './fixture.js';

let environments: EnvironmentServer;
let harness: Harness;
beforeAll(async () => {
  environments = await startEnvironments();
});
afterAll(() => environments.close());
beforeEach(async () => {
  harness = await startHarness(environments);
  await harness.advance(lastSftStep);
});
afterEach(() => harness.close());

/** First GRPO step, and its plan: two slots of two samples. */
const step = lastSftStep + 1;
async function planned(at = step): Promise<{ answer: PlannedStep; plan: GrpoPlan }> {
  const answer = await harness.plan(at);
  const { record } = await readPlan(harness.store, run, at, answer.plan);
  if (record.kind !== 'grpo') throw new Error(`step ${at} is no GRPO step`);
  return { answer, plan: record };
}

const collect = (
  answer: PlannedStep,
  slots: [number, number] = [0, answer.slots],
  deps = harness.node,
  attempt = 1,
) =>
  harness.attempt(
    `step-${String(answer.step).padStart(6, '0')}/collect`,
    () => collectRollouts(deps, { ...harness.reference(answer), slots }),
    attempt,
  );
const seal = async (answer: PlannedStep, deps = harness.node) => {
  const { record } = await readPlan(harness.store, run, answer.step, answer.plan);
  return harness.attempt('seal', () => sealBatch(deps, harness.reference(answer), record));
};
const update = (answer: PlannedStep, deps = harness.node, attempt = 1) =>
  harness.attempt('update', () => updatePolicy(deps, harness.reference(answer)), attempt);
const episodeAt = (slot: number, sample: number, at = step): Promise<EpisodeRecord> =>
  requireRecord(harness.store, episodeKey(run, at, slot, sample), 'episode');

/** The policy of a few steps never passes: outcomes are set as if other episodes had been played. */
async function setOutcome(slot: number, sample: number, outcome: Outcome, at = step): Promise<void> {
  const record = { ...(await episodeAt(slot, sample, at)), outcome };
  const bytes = await encodeRecord('episode', record);
  await tamper(harness.store, episodeKey(run, at, slot, sample), () => bytes);
}
const passed: Outcome = { status: 'graded', value: 1 };
const unknown: Outcome = { status: 'unknown', reason: 'call', failures: 3 };

async function starts(activity: string): Promise<string[]> {
  const found: string[] = [];
  for await (const { key } of harness.store.list(`${attemptsFolder(run, step)}${activity}/`)) {
    found.push(...((await readRecord(harness.store, key, 'attempt')) as AttemptRecord).starts);
  }
  return found;
}

describe('planStep', () => {
  it('makes the same bytes of the same records, wherever it runs', async () => {
    const { answer } = await planned();
    const first = await harness.store.get(planKey(run, step));
    await tamper(harness.store, planKey(run, step), () => null);
    expect(await harness.plan(step)).toEqual(answer);
    expect(await harness.store.get(planKey(run, step))).toEqual(first);
  });

  it('names the state before, each slot with its task and seed, and no task twice', async () => {
    const { plan } = await planned();
    expect(plan.previous_state).toBe(await readState(harness.store, run, step - 1));
    expect(plan.slots.map(({ slot }) => slot)).toEqual([0, 1]);
    expect(new Set(plan.slots.map(({ task_key }) => task_key)).size).toBe(2);
    expect(plan.optimizer.reset_moments).toBe(true);
  });

  it('folds control records up to the number that it is given, and no further', async () => {
    const record = (updateId: string, change: ControlChange) =>
      recordControl(harness.orchestrator, { run, owner: 1, updateId, change });
    await record('a', { kind: 'setHyperparameters', lr: 0.25 });
    await record('b', { kind: 'setHyperparameters', lr: 0.5, temperature: 0.7 });
    await harness.plan(step, 1);
    const { record: plan } = await readPlan(harness.store, run, step);
    expect(plan).toMatchObject({ control: 1, sampling: { temperature: 1 } });
    expect(plan.optimizer.learning_rates).toEqual([0.25]);
  });

  it('gives each slot of each step, and each seed of a run, a world seed of its own', async () => {
    const seeds: number[] = [];
    for (const at of [step, step + 1]) {
      seeds.push(...(await planned(at)).plan.slots.map(({ seed }) => seed));
      await harness.advance(at);
    }
    const other = await startHarness(environments);
    await other.open({ ...other.spec, seed: 6 });
    await other.advance(lastSftStep);
    const { record } = await readPlan(other.store, run, step, (await other.plan(step)).plan);
    await other.close();
    if (record.kind !== 'grpo') throw new Error('the step after the warm start is one of GRPO');
    seeds.push(...record.slots.map(({ seed }) => seed));
    expect(new Set(seeds).size).toBe(6);
  });

  it('draws demonstrations by the run’s seed and by the phase, each once an epoch', async () => {
    const spec = (seed: number): Record<string, unknown> => {
      const [phase] = harness.spec['warm_start'] as object[];
      const short = { ...phase, updates: 3, mini_batch_size: 4 };
      return { ...harness.spec, seed, warm_start: [short, { ...short, name: 'again' }] };
    };
    const drawn = async (seed: number): Promise<number[][]> => {
      const other = await startHarness(environments);
      await other.open(spec(seed));
      await other.advance(6);
      const plans = await Promise.all([1, 2, 3, 4, 5, 6].map((at) => readPlan(other.store, run, at)));
      await other.close();
      const lines = plans.map(({ record }) => (record.kind === 'sft' ? record.mini_batches.flat() : []));
      return [lines.slice(0, 3).flat(), lines.slice(3).flat()];
    };
    const orders = [...(await drawn(5)), ...(await drawn(6))];
    const everyLine = Array.from({ length: 12 }, (_, line) => line);
    for (const order of orders) expect([...order].sort((a, b) => a - b)).toEqual(everyLine);
    expect(new Set(orders.map(String)).size).toBe(4);
  });

  it('adopts the plan that is there, also where control has changed since', async () => {
    const { answer } = await planned();
    await recordControl(harness.orchestrator, {
      run,
      owner: 1,
      updateId: 'a',
      change: { kind: 'setHyperparameters', lr: 0.25 },
    });
    expect(await harness.plan(step, 1)).toEqual(answer);
  });

  it('moves the pass rates of its templates by the outcomes of the step before', async () => {
    const { answer, plan } = await planned();
    await collect(answer);
    await setOutcome(0, 0, passed);
    await setOutcome(0, 1, unknown);
    await setOutcome(1, 0, unknown);
    await setOutcome(1, 1, unknown);
    await update(answer);
    const { plan: next } = await planned(step + 1);
    const [first, second] = plan.slots;
    expect(next.curriculum.pass_rates[first?.template ?? '']).toBeCloseTo(0.5 + 0.2 * 0.5, 12);
    expect(next.curriculum.pass_rates[second?.template ?? '']).toBeUndefined();
    // The first GRPO step had nothing to learn from, so the warm start's moments are still to be cleared.
    expect(next.optimizer.reset_moments).toBe(true);
  });

  it('refuses an update record that was tampered with', async () => {
    await tamper(harness.store, updateKey(run, lastSftStep), (bytes) => bytes.subarray(0, 100));
    await expect(harness.plan(step)).rejects.toMatchObject({
      name: 'UnreadableRecord',
      key: updateKey(run, lastSftStep),
    });
  });
});

describe('collectRollouts', () => {
  it('gives every slot and sample its record, written after the attempt that starts it', async () => {
    const { answer, plan } = await planned();
    expect(await collect(answer)).toMatchObject({ graded: 4, unknown: 0, mean_reward: 0 });
    for (const { slot, task_key } of plan.slots) {
      for (const sample of [0, 1]) {
        expect(await episodeAt(slot, sample)).toMatchObject({
          plan: answer.plan,
          state: plan.previous_state,
          task_key,
          outcome: { status: 'graded', value: 0 },
        });
      }
    }
    expect((await starts('collect')).sort()).toEqual(
      [0, 1].flatMap((slot) => [0, 1].map((sample) => episodeKey(run, step, slot, sample))),
    );
  });

  it('keeps the state that samples on the disk where it is asked to, and only there', async () => {
    const { answer, plan } = await planned();
    const { holder } = harness.node;
    expect((await collect(answer)).kept).toBeNull();
    expect(await holder.states.list(run)).toEqual([]);
    const keep = () =>
      harness.attempt('collect', () =>
        collectRollouts(harness.node, { ...harness.reference(answer), slots: [0, 2], keep: true }),
      );
    expect((await keep()).kept).toEqual({ seconds: expect.any(Number) as number });
    expect(await holder.states.list(run)).toEqual([{ step: step - 1, state: plan.previous_state }]);
  });

  it('is none the worse for a state that cannot be saved, and says why', async () => {
    const { answer } = await planned();
    // A file where the folder should be.
    writeFileSync(join(harness.folder, 'node-a', 'states'), '');
    const collected = await harness.attempt('collect', () =>
      collectRollouts(harness.node, { ...harness.reference(answer), slots: [0, 2], keep: true }),
    );
    expect(collected).toMatchObject({
      graded: 4,
      kept: { problem: expect.stringContaining('states') as string },
    });
  });

  it('samples no finished episode again (R9): only what is missing is played', async () => {
    const { answer } = await planned();
    await collect(answer, [0, 1]);
    const before = await harness.store.get(episodeKey(run, step, 0, 1));
    await tamper(harness.store, episodeKey(run, step, 0, 0), () => null);
    const { deps, calls } = counting(harness.node);
    expect(await collect(answer, [0, 2], deps, 2)).toMatchObject({ graded: 4 });
    expect(calls.generate).toBe(3);
    expect(await harness.store.get(episodeKey(run, step, 0, 1))).toEqual(before);
    await collect(answer, [0, 2], deps, 3);
    expect(calls.generate).toBe(3);
  });

  it('looks again after it has waited for the engine (R9): what another node finished meanwhile is not sampled', async () => {
    const { answer } = await planned();
    const { deps, calls } = counting(harness.node);
    let letGo = (): void => undefined;
    let held: Promise<void> = Promise.resolve();
    await new Promise<void>((isHeld) => {
      held = deps.holder.alone(run, step - 1, 'none', () => {
        isHeld();
        return new Promise<void>((resolve) => (letGo = resolve));
      });
    });
    const late = collect(answer, [0, 2], deps);
    await collect(answer, [0, 2], harness.secondNode(), 2);
    letGo();
    await held;
    expect(await late).toMatchObject({ graded: 4 });
    expect(calls.generate).toBe(0);
  });

  it('plays an episode anew with the same tokens, on another node too', async () => {
    const { answer } = await planned();
    await collect(answer);
    const { observed: _, ...first } = await episodeAt(1, 0);
    await tamper(harness.store, episodeKey(run, step, 1, 0), () => null);
    await collect(answer, [0, 2], harness.secondNode(), 2);
    const { observed: __, ...second } = await episodeAt(1, 0);
    expect(second).toEqual(first);
  });

  it('asks nothing of the engine for a committed step', async () => {
    const { answer } = await planned();
    await collect(answer);
    await update(answer);
    await tamper(harness.store, episodeKey(run, step, 0, 0), () => null);
    const { deps, calls } = counting(harness.node);
    expect(await collect(answer, [0, 2], deps, 2)).toMatchObject({ graded: 4 });
    expect(calls.generate).toBe(0);
  });

  it('refuses a plan that was changed after it was recorded', async () => {
    const { answer } = await planned();
    await tamper(harness.store, planKey(run, step), (bytes) =>
      bytes.toString().replace('"temperature":1', '"temperature":2'),
    );
    await expect(collect(answer)).rejects.toMatchObject({
      name: 'UnreadableRecord',
      key: planKey(run, step),
    });
  });
});

describe('sealBatch', () => {
  it('makes equal bytes when it is made twice, by any node', async () => {
    const { answer } = await planned();
    await collect(answer);
    await setOutcome(0, 0, passed);
    const first = await seal(answer);
    const bytes = await harness.store.get(batchKey(run, step));
    expect(await seal(answer, harness.secondNode())).toEqual({ ...first, adopted: true });
    await tamper(harness.store, batchKey(run, step), () => null);
    expect(await seal(answer, harness.secondNode())).toEqual(first);
    expect(await harness.store.get(batchKey(run, step))).toEqual(bytes);
  });

  it('lets unknown outcomes carry no loss, and never counts them as 0', async () => {
    const { answer } = await planned();
    await collect(answer);
    await setOutcome(0, 0, passed);
    await setOutcome(1, 0, passed);
    await setOutcome(1, 1, unknown);
    const { batch } = await seal(answer);
    const bytes = (await harness.store.get(batchKey(run, step))) as Uint8Array;
    expect(sha256Hex(bytes)).toBe(batch);
    const { arrays, identity } = decodeBatchFile(bytes, batchKey(run, step));
    expect(identity.outcomes).toEqual([
      [1, 0],
      [1, null],
    ]);
    // The second group has one graded member: no mean to learn against. The first one's two share the targets.
    const episodes = [await episodeAt(0, 0), await episodeAt(0, 1)];
    const sampled = episodes.map(({ logprobs }) => logprobs.length);
    expect(identity.loss_tokens[0]).toBe((sampled[0] ?? 0) + (sampled[1] ?? 0));
    const advantages = [...arrays.target_advantages];
    expect(advantages.filter((value) => value > 0)).toHaveLength(sampled[0] ?? -1);
    expect(advantages.filter((value) => value < 0)).toHaveLength(sampled[1] ?? -1);
    expect(identity.metrics['reward/avg_raw_reward']).toBeCloseTo(2 / 3, 12);
  });

  it('needs every record of the plan', async () => {
    const { answer } = await planned();
    await collect(answer, [0, 1]);
    await expect(seal(answer)).rejects.toMatchObject({
      name: 'UnreadableRecord',
      key: episodeKey(run, step, 1, 0),
    });
    expect(await harness.store.get(batchKey(run, step))).toBeNull();
  });

  it('refuses a batch that its episodes do not make, says where it differs, and how to go on', async () => {
    const { answer } = await planned();
    await collect(answer);
    await seal(answer);
    await setOutcome(0, 0, passed);
    await expect(seal(answer)).rejects.toMatchObject({
      name: 'Diverged',
      message: expect.stringMatching(
        /outcomes\.0\.0 .*longhaul quarantine runs\/unit\/steps\/000003\/batch\.safetensors$/,
      ) as string,
    });
  });

  it('names a stored batch that is broken', async () => {
    const { answer } = await planned();
    await collect(answer);
    await seal(answer);
    await tamper(harness.store, batchKey(run, step), (bytes) => bytes.subarray(0, 20));
    await expect(seal(answer)).rejects.toMatchObject({ name: 'UnreadableRecord', key: batchKey(run, step) });
  });
});

describe('updatePolicy', () => {
  async function played(outcomes: [number, number, Outcome][]): Promise<PlannedStep> {
    const { answer } = await planned();
    await collect(answer);
    for (const [slot, sample, outcome] of outcomes) await setOutcome(slot, sample, outcome);
    return answer;
  }

  it('commits the new state under the digests of everything it was made from', async () => {
    const answer = await played([[0, 0, passed]]);
    const committed = await update(answer);
    const { identity } = await readUpdate(harness.store, run, step);
    const batch = sha256Hex((await harness.store.get(batchKey(run, step)))!);
    const previous_state = await readState(harness.store, run, step - 1);
    expect(identity).toMatchObject({ plan: answer.plan, batch, previous_state, applied: true });
    expect(identity.step_id).toBe(sha256Hex(`${previous_state}\n${batch}\n${answer.plan}\n`));
    expect(committed).toMatchObject({ step, applied: true, state: identity.state, reason: null });
    expect(identity.state).not.toBe(previous_state);
  });

  it('answers from its record where there is one, without the engine', async () => {
    const answer = await played([[0, 0, passed]]);
    const first = await update(answer);
    const { deps, calls } = counting(harness.secondNode());
    expect(await update(answer, deps, 2)).toEqual(first);
    expect(calls.update).toBe(0);
  });

  it('applied by an engine whose reply was lost is not applied again: the engine knows the step id', async () => {
    const answer = await played([[0, 0, passed]]);
    const first = await update(answer);
    await tamper(harness.store, updateKey(run, step), () => null);
    const incarnation = (await harness.engine.info()).incarnation;
    expect(await update(answer, harness.node, 2)).toMatchObject({ state: first.state, applied: true });
    expect((await harness.engine.info()).incarnation).toBe(incarnation);
    expect((await harness.engine.held())?.state).toBe(first.state);
    expect(harness.said.filter((line) => line.startsWith('restored'))).toEqual([]);
  });

  it('computed by two nodes is one state', async () => {
    const answer = await played([[0, 0, passed]]);
    const first = await update(answer);
    await tamper(harness.store, updateKey(run, step), () => null);
    expect((await update(answer, harness.secondNode(), 2)).state).toBe(first.state);
  });

  it('without a learning signal commits the step with the state unchanged', async () => {
    const answer = await played([]);
    const { deps, calls } = counting(harness.node);
    const previous = await readState(harness.store, run, step - 1);
    expect(await update(answer, deps)).toMatchObject({
      applied: false,
      reason: 'no_signal',
      state: previous,
    });
    expect(calls.update).toBe(0);
    expect(await harness.plan(step + 1)).toMatchObject({ step: step + 1 });
  });

  it('refuses a batch that was tampered with, naming it: both are kept, and nothing is committed', async () => {
    const answer = await played([[0, 0, passed]]);
    await seal(answer);
    await tamper(harness.store, batchKey(run, step), (bytes) => {
      bytes[bytes.length - 1] = (bytes[bytes.length - 1] ?? 0) ^ 1;
      return bytes;
    });
    await expect(update(answer)).rejects.toMatchObject({
      message: expect.stringContaining(batchKey(run, step)) as string,
    });
    expect(await harness.store.get(updateKey(run, step))).toBeNull();
    expect((await harness.engine.held())?.state).toBe(await readState(harness.store, run, step - 1));
  });
});

describe('evaluateState', () => {
  const evaluate = (deps: NodeDeps, suite: 'interval' | 'final', attempt = 1) =>
    harness.attempt(
      'evaluate',
      () => evaluateState(deps, { run, owner: 1, step: lastSftStep, suite }),
      attempt,
    );

  it('plays each task once ever: a second call answers from the records', async () => {
    const { deps, calls } = counting(harness.node);
    const first = await evaluate(deps, 'interval');
    expect(first).toMatchObject({ graded: 2, unknown: 0, pass_at_1: 0, suite_name: 'interval' });
    expect(calls.generate).toBe(2);
    expect(await evaluate(deps, 'interval', 2)).toEqual(first);
    const other = counting(harness.secondNode());
    expect(await evaluate(other.deps, 'interval', 3)).toEqual(first);
    expect(calls.generate + other.calls.generate).toBe(2);
  });

  it('goes on after a kill with what is missing', async () => {
    const { deps, calls } = counting(harness.node);
    const first = await evaluate(deps, 'final');
    const folder = `evals/${first.state}/${first.suite}/`;
    await tamper(harness.store, `${folder}result.json`, () => null);
    await tamper(harness.store, `${folder}episodes/00001.000.json.gz`, () => null);
    expect(await evaluate(deps, 'final', 2)).toEqual(first);
    expect(calls.generate).toBe(4);
  });

  it('has random numbers of its own (R13): the same place samples otherwise than a rollout', async () => {
    const keys: SamplingKey[] = [];
    const { engine } = harness.node.holder;
    const { generate } = engine;
    engine.generate = (request, signal) => {
      keys.push(request.key);
      return generate(request, signal);
    };
    await evaluate(harness.node, 'final');
    // Episodes start when their sessions are open, in any order.
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

  it('knows held-out tasks only, each with a seed of its own', async () => {
    const { state, suite } = await evaluate(harness.node, 'final');
    const record = await requireRecord(harness.store, `evals/${state}/${suite}/suite.json`, 'suite');
    expect(record.tasks).toHaveLength(3);
    expect(new Set(record.tasks.map(({ seed }) => seed)).size).toBe(3);
    const data = await harness.node.runs.get(run);
    for (const { task_key } of record.tasks) expect(data.taskByKey.get(task_key)?.split).toBe('held_out');
    expect(recordDigest(record)).toBe(suite);
  });
});

describe('recordControl', () => {
  const pause = (updateId: string) =>
    recordControl(harness.orchestrator, { run, owner: 1, updateId, change: { kind: 'pause' } });

  it('writes an Update once, however often it is sent', async () => {
    expect(await pause('u1')).toMatchObject({ n: 1, paused: true });
    expect(await pause('u1')).toMatchObject({ n: 1, paused: true });
    expect(await pause('u2')).toMatchObject({ n: 2 });
  });

  it('numbers those that come at once', async () => {
    await Promise.all(['a', 'b', 'c', 'd'].map(pause));
    expect(await pause('a')).toMatchObject({ n: 4 });
  });

  it('refuses a record of a newer version instead of guessing', async () => {
    await pause('u1');
    await tamper(harness.store, `runs/${run}/control/1.json`, (bytes) =>
      bytes.toString().replace('longhaul.control/1', 'longhaul.control/2'),
    );
    await expect(pause('u2')).rejects.toMatchObject({ name: 'NewerSchema' });
  });
});

describe('what steps leave on the disk', () => {
  it('is no batch: each is fetched for one update only', async () => {
    expect(await readdir(join(harness.folder, 'node-a', 'batches'))).toEqual([]);
  });
});
