// The figures ft/* of a run whose engine is killed. A fault is recorded with its cost; without a fault, nothing is recorded.
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { MockActivityEnvironment } from '@temporalio/testing';
import { DefaultLogger } from '@temporalio/worker';
import { describe, expect, it, vi } from 'vitest';
import type { OnNode } from '../../../src/activities/contracts.js';
import { createNodeActivities } from '../../../src/activities/node-activities.js';
import { createOrchestratorActivities } from '../../../src/activities/orchestrator-activities.js';
import { lastCommittedStep, readRun, readUpdate } from '../../../src/store/runs/run-records.js';
import type { AttemptSnapshot } from '../../../src/activities/attempt/attempt-account.js';
import type { NodeDeps } from '../../../src/activities/node-deps.js';
import { planStep } from '../../../src/activities/step/plan-step.js';
import { type Predecessor, ProcessLife } from '../../../src/activities/attempt/process-life.js';
import type { AttemptRecord, Recovery } from '../../../src/spec/records/attempt-records.js';
import { type FaultFigures, faultsIn, readFaults } from '../../../src/store/runs/fault-figures.js';
import { readAttemptsIn } from '../../../src/store/runs/step-attempts.js';
import { guardActivities } from '../../../src/workers/attempt/activity-guard.js';
import { drainingFailure } from '../../../src/workers/node/node-departure.js';
import { OpenActivities } from '../../../src/workers/attempt/open-activities.js';
import { episodesFolder } from '../../../src/store/record-keys.js';
import { keysOf } from '../../store/overlaid-store.js';
import { activityId, lastSftStep, run } from '../fixture.js';
import { harness, useHarness } from '../own-harness.js';

useHarness();

const step = lastSftStep + 1;
const recovery: Recovery = {
  cause: 'engine_exit',
  event: 'an engine',
  lost: { seconds: 1, tokens: 5, episodes: 1 },
  detection_seconds: 0.1,
  down_seconds: 2,
};
const name = (part: string, at = step): string => activityId(at, part);
const figures = async (at = step): Promise<FaultFigures> =>
  (await readFaults(harness.store, await readRun(harness.store, run), at)).figures;
const faults = (all: FaultFigures): FaultFigures =>
  Object.fromEntries(Object.entries(all).filter(([key]) => !['ft/ettr', 'ft/wall_seconds'].includes(key)));
const recoveriesOf = (records: readonly AttemptRecord[]) =>
  records.flatMap(({ observed }) => observed.recoveries ?? []);

async function killEngine(): Promise<void> {
  const pid = harness.engine.pid();
  process.kill(pid ?? NaN, 'SIGKILL');
  // Another engine may be there already.
  await vi.waitFor(() => expect(harness.engine.pid()).not.toBe(pid), 120_000);
}

/** Kills the engine during the n-th call of `verb`. */
function killAt(verb: 'generate' | 'update', nth: number): void {
  const { engine } = harness.node.holder;
  const call = engine[verb] as (...args: unknown[]) => Promise<unknown>;
  let calls = 0;
  Object.assign(engine, {
    [verb]: async (...args: unknown[]) => {
      if (++calls !== nth) return call(...args);
      const answer = call(...args);
      answer.catch(() => undefined);
      process.kill(harness.engine.pid() ?? NaN, 'SIGSTOP');
      await killEngine();
      return answer;
    },
  });
}

it('a run without faults reports no faults, and an effective training time ratio of 1', async () => {
  await harness.advance(step);
  expect(faults(await figures())).toEqual({});
  expect((await figures())['ft/ettr']).toBe(1);
  const records = await readAttemptsIn(harness.store, run, step);
  expect(records).toHaveLength(1);
  expect(recoveriesOf(records)).toEqual([]);
});

/** The failure of a turn in flight, or of a turn that is requested from the next engine before its state is restored. */
const ofKilledEngine = expect.stringMatching(/^(EngineExited|WrongState)$/) as unknown;

describe('an engine that is killed', () => {
  it('during a collect costs the unfinished turns, and a restore from a checkpoint or by replay', async () => {
    await harness.advance(lastSftStep);
    const planned = await harness.plan(step);
    const activities = createNodeActivities(harness.node);
    const input = harness.rollouts(planned);
    const collect = (attempt: number) =>
      harness.attempt(name('collect'), () => activities.collectRollouts(input), attempt);
    killAt('generate', 2);
    const begun = performance.now();
    await expect(collect(1)).rejects.toMatchObject({ code: 'EngineExited' });
    const answer = await collect(2);
    const seconds = (performance.now() - begun) / 1000;
    expect(answer.graded).toBeGreaterThan(0);
    const [recovery, ...more] = recoveriesOf(await readAttemptsIn(harness.store, run, step));
    expect(more).toEqual([]);
    expect(recovery).toMatchObject({
      cause: 'engine_exit',
      restore: { from: 'base', step: 0, bytes: 0 },
      replay: { steps: lastSftStep },
    });
    const { down_seconds, detection_seconds, restore, replay, lost } = recovery!;
    expect(detection_seconds).toBeLessThan(1);
    expect(restore!.seconds + replay!.seconds).toBeLessThanOrEqual(down_seconds);
    expect(down_seconds + lost.seconds).toBeLessThan(seconds);
    expect(lost.episodes).toBeGreaterThan(0);
    await harness.attempt(name('update'), () => activities.updatePolicy(input));
    const told = await figures();
    expect(told).toMatchObject({
      'ft/restarts/engine_exit': 1,
      'ft/replayed_steps': lastSftStep,
      'ft/lost_episodes': lost.episodes,
    });
    expect(told['ft/lost_seconds']).toBeCloseTo(lost.seconds + down_seconds, 2);
    expect(told['ft/ettr']).toBeLessThan(1);
    // The step's record does not contain them; the next plan reports them.
    const { metrics } = (await readUpdate(harness.store, run, step)).observed;
    expect(Object.keys(metrics).filter((figure) => figure.startsWith('ft/'))).toEqual([]);
    const orchestrator = createOrchestratorActivities(harness.orchestrator);
    const next = { run, owner: input.owner, step: step + 1, control: 0 };
    const planning = harness.attempt(name('plan', step + 1), () => orchestrator.planStep(next));
    expect((await planning).faults).toEqual(told);
  });

  it('during a collect loses no episode that continues from its journal', async () => {
    const generator = { ...(harness.spec['generator'] as object), n_samples_per_prompt: 4, max_turns: 4 };
    await harness.open({ ...harness.spec, generator });
    await harness.advance(lastSftStep);
    const planned = await harness.plan(step);
    const { collectRollouts } = createNodeActivities(harness.node);
    const input = harness.rollouts(planned);
    const collect = (attempt: number) =>
      harness.attempt(name('collect'), () => collectRollouts(input), attempt);
    killAt('generate', 11);
    await expect(collect(1)).rejects.toMatchObject({ code: ofKilledEngine });
    const finished = (await keysOf(harness.store, episodesFolder(run, step))).length;
    await collect(2);
    const continued = harness.said.flatMap((line) => /^(\d+) episodes continued/.exec(line)?.[1] ?? []);
    expect(continued.map(Number)).toEqual([expect.any(Number)]);
    const [recovery] = recoveriesOf(await readAttemptsIn(harness.store, run, step));
    expect(recovery!.lost.episodes).toBe(4 * planned.slots - finished - Number(continued[0]));
  });

  it('during a collect without writable journals also costs the answered turns', async () => {
    const generator = { ...(harness.spec['generator'] as object), n_samples_per_prompt: 4, max_turns: 4 };
    await harness.open({ ...harness.spec, generator });
    await harness.advance(lastSftStep);
    const planned = await harness.plan(step);
    const journals = join(harness.folder, 'node-a', 'journal');
    rmSync(journals, { recursive: true, force: true });
    writeFileSync(journals, '');
    const activities = createNodeActivities(harness.node);
    const input = harness.rollouts(planned);
    const collect = (attempt: number) =>
      harness.attempt(name('collect'), () => activities.collectRollouts(input), attempt);
    killAt('generate', 11);
    await expect(collect(1)).rejects.toMatchObject({ code: ofKilledEngine });
    expect(harness.said).toContainEqual(expect.stringContaining('episodes continue without journals'));
    await collect(2);
    const [recovery] = recoveriesOf(await readAttemptsIn(harness.store, run, step));
    expect(recovery!.lost.tokens).toBeGreaterThan(0);
    expect(recovery!.lost.episodes).toBeGreaterThan(0);
    await harness.attempt(name('update'), () => activities.updatePolicy(input));
    expect(await figures()).toMatchObject({ 'ft/lost_tokens': recovery!.lost.tokens });
  });

  it('during an update costs only that update, and the next step adds nothing', async () => {
    await harness.advance(lastSftStep - 1);
    const input = harness.reference(await harness.plan(lastSftStep));
    const activities = createNodeActivities(harness.node);
    killAt('update', 1);
    const update = (attempt: number) =>
      harness.attempt(name('update', lastSftStep), () => activities.updatePolicy(input), attempt);
    await expect(update(1)).rejects.toMatchObject({ code: 'EngineExited' });
    await update(2);
    const told = await figures(lastSftStep);
    expect(told).toMatchObject({
      'ft/restarts/engine_exit': 1,
      'ft/replayed_steps': lastSftStep - 1,
    });
    expect(told).not.toHaveProperty('ft/lost_tokens');
    expect(told).not.toHaveProperty('ft/lost_episodes');
    await harness.advance(step);
    expect(await lastCommittedStep(harness.store, run)).toBe(step);
    expect(faults(await figures())).toEqual(faults(told));
  });

  it('together with its worker costs the work that the last heartbeat reported, and a restart', async () => {
    await harness.advance(lastSftStep);
    const planned = await harness.plan(step);
    const killed = 'node-a@test pid 1';
    const now = Date.now();
    const dead = {
      identity: killed,
      aliveAt: now - 3_000,
      noticedAt: now - 1_500,
      left: false,
    };
    const successor = {
      ...harness.secondNode(),
      life: new ProcessLife({ name: 'node-a', host: 'test', pid: 2 }, dead),
    };
    const unrecorded = { ...recovery, event: `${killed}, engine 7` };
    const ft: AttemptSnapshot = {
      at: now - 4_000,
      lost: { seconds: 10, tokens: 120, episodes: 3 },
      recoveries: [unrecorded],
      waited_seconds: 0.5,
    };
    const environment = new MockActivityEnvironment(
      { activityId: name('collect'), attempt: 2, heartbeatDetails: { finished: 1, of: 4, ft } },
      { logger: new DefaultLogger('ERROR') },
    );
    const { collectRollouts } = createNodeActivities(successor);
    const input = harness.rollouts(planned);
    await environment.run(() => collectRollouts(input));
    const records = await readAttemptsIn(harness.store, run, step);
    const [before, restart, ...more] = recoveriesOf(records);
    expect(more).toEqual([]);
    expect(before).toEqual(unrecorded);
    expect(restart).toMatchObject({
      cause: 'worker_restart',
      event: killed,
      // One second passed between the heartbeat and the worker's death.
      lost: { seconds: 11, tokens: 120, episodes: 3 },
      detection_seconds: 1.5,
      replay: { steps: lastSftStep },
    });
    expect(restart!.down_seconds).toBeGreaterThan(3);
    expect(records[0]!.observed.waited_seconds).toBe(0.5);
  });

  it('while no activity runs is counted by the next activity that needs the engine', async () => {
    await harness.advance(lastSftStep - 1);
    const activities = createNodeActivities(harness.node);
    const update = async (at: number) => {
      const input = harness.reference(await harness.plan(at));
      return harness.attempt(name('update', at), () => activities.updatePolicy(input));
    };
    await update(lastSftStep);
    await killEngine();
    const planned = await harness.plan(step);
    const input = harness.rollouts(planned);
    await harness.attempt(name('collect'), () => activities.collectRollouts(input));
    const recoveries = recoveriesOf(await readAttemptsIn(harness.store, run, step));
    expect(recoveries).toMatchObject([
      { cause: 'engine_exit', lost: { tokens: 0, episodes: 0 }, replay: { steps: lastSftStep } },
    ]);
  });
});

describe('a worker that replaces another one', () => {
  const now = Date.now();
  const identity = 'node-a@test pid 1';
  const dead: Predecessor = { identity, aliveAt: now - 3_000, noticedAt: now - 1_500, left: false };
  const inPlaceOf = (predecessor: Predecessor): NodeDeps => ({
    ...harness.secondNode(),
    life: new ProcessLife({ name: 'node-a', host: 'test', pid: 2 }, predecessor),
  });

  /** The recoveries recorded by the collect of the first GRPO step, in an attempt scheduled at `scheduledTimestampMs`. */
  async function told(
    deps: NodeDeps,
    attempt: number,
    scheduledTimestampMs: number,
    more: OnNode = {},
  ): Promise<Recovery[]> {
    const planned = await harness.plan(step);
    const input = { ...harness.rollouts(planned), ...more };
    const environment = new MockActivityEnvironment(
      { activityId: name('collect'), attempt, scheduledTimestampMs },
      { logger: new DefaultLogger('ERROR') },
    );
    await environment.run(() => createNodeActivities(deps).collectRollouts(input));
    return recoveriesOf(await readAttemptsIn(harness.store, run, step));
  }

  it('reports a drained node as the cause if its predecessor was asked to leave', async () => {
    await harness.advance(lastSftStep);
    expect(await told(inPlaceOf({ ...dead, left: true }), 2, now - 60_000)).toMatchObject([
      { cause: 'node_drained', event: identity },
    ]);
  });

  it('counts one departure once, although the workflow reports it, too', async () => {
    await harness.advance(lastSftStep);
    const drained = (lease: string, node = 'node-a') =>
      ({ what: 'node_drained', event: lease, seconds: 0, node }) as const;
    const deps = inPlaceOf({ ...dead, left: true });
    await told(deps, 2, now - 60_000);
    const interruptions = [drained(`${run}/1`)];
    await told(deps, 1, now, { interruptions });
    // A retry gets the same list.
    expect(await told(deps, 1, now + 1, { interruptions })).toMatchObject([
      { cause: 'node_drained', event: identity, detection_seconds: 1.5 },
    ]);
    const attempts = await readAttemptsIn(harness.store, run, step);
    expect(faultsIn(attempts)).toMatchObject({ 'ft/restarts/node_drained': 1, 'ft/detection_seconds': 1.5 });
    // An earlier departure of this node, and one of another node, are faults of their own.
    await told(deps, 1, now + 2, { interruptions: [drained(`${run}/0`), drained('other/1', 'node-b')] });
    expect(faultsIn(await readAttemptsIn(harness.store, run, step))).toMatchObject({
      'ft/restarts/node_drained': 3,
      'ft/detection_seconds': 1.5,
    });
  });

  it('counts a departure of which only the workflow knows, under the name of its predecessor', async () => {
    await harness.advance(lastSftStep);
    const interruptions = [
      { what: 'node_drained', event: `${run}/1`, seconds: 0, node: 'node-a' },
      { what: 'node_drained', event: `${run}/2`, seconds: 0, node: 'node-a' },
    ] as const;
    const recoveries = await told(inPlaceOf({ ...dead, left: true }), 1, now, {
      interruptions: [...interruptions],
    });
    expect(recoveries.filter(({ cause }) => cause === 'node_drained').map(({ event }) => event)).toEqual([
      identity,
      `${run}/1`,
    ]);
  });

  it('does not blame its predecessor for an attempt that was scheduled long after the death', async () => {
    await harness.advance(lastSftStep);
    expect(await told(inPlaceOf(dead), 2, now + 60_000)).toMatchObject([{ cause: 'timeout' }]);
  });

  it('restores the state if its predecessor served the run for the same workflow', async () => {
    await harness.advance(lastSftStep);
    expect(await told(inPlaceOf(dead), 1, now)).toMatchObject([{ cause: 'worker_restart', event: identity }]);
  });

  it('counts no second fault if the workflow already reported the node as lost', async () => {
    await harness.advance(lastSftStep);
    const lost = { what: 'node_lost' as const, event: `${run}/1`, seconds: 9 };
    expect(await told(inPlaceOf(dead), 1, now, { interruptions: [lost] })).toMatchObject([
      { cause: 'node_lost', event: `${run}/1`, detection_seconds: 9, down_seconds: 9 },
      { cause: 'placed', event: 'node-a@test pid 2' },
    ]);
  });

  it('counts no fault if its predecessor served the run only for another workflow', async () => {
    await harness.advance(lastSftStep);
    const { owner } = await harness.takeOver();
    const planned = await planStep(harness.orchestrator, { run, step, owner, control: 0 });
    const input = { run, owner, step, plan: planned.plan, slots: [0, planned.slots] as [number, number] };
    const { collectRollouts } = createNodeActivities(inPlaceOf(dead));
    await harness.attempt(name('collect'), () => collectRollouts(input));
    const recoveries = recoveriesOf(await readAttemptsIn(harness.store, run, step));
    expect(recoveries).toMatchObject([{ cause: 'placed' }]);
  });
});

it('faults that only the workflow knows are recorded once, however often the activity is tried', async () => {
  await harness.advance(lastSftStep);
  const planned = await harness.plan(step);
  const lost = { what: 'node_lost' as const, event: `${run}/1`, seconds: 9 };
  const interruptions = [lost, { what: 'waited' as const, seconds: 20 }];
  const reference = { ...harness.reference(planned), interruptions };
  const { collectRollouts, updatePolicy } = createNodeActivities(harness.node);
  const collect = (attempt: number) =>
    harness.attempt(name('collect'), () => collectRollouts({ ...reference, slots: [0, 2] }), attempt);
  await collect(1);
  await collect(2);
  await harness.attempt(name('update'), () => updatePolicy(reference));
  expect(await figures()).toMatchObject({
    'ft/restarts/node_lost': 1,
    'ft/detection_seconds': 9,
    'ft/waiting_seconds': 20,
  });
});

it('a node that leaves during a collect is recorded as drained, with the lost work of its episodes', async () => {
  await harness.advance(lastSftStep);
  const planned = await harness.plan(step);
  const activities = createNodeActivities(harness.node);
  const input = harness.rollouts(planned);
  const leaving = new AbortController();
  const { engine } = harness.node.holder;
  const { generate } = engine;
  let calls = 0;
  engine.generate = (...args) => {
    if (++calls === 2) leaving.abort(drainingFailure('node-a'));
    return generate(...args);
  };
  const open = new OpenActivities(join(harness.folder, 'open-activities'));
  const attempt = new MockActivityEnvironment(
    { activityId: name('collect'), attempt: 1 },
    { interceptors: [guardActivities({ open, cutOff: leaving.signal })] },
  );
  await expect(attempt.run(() => activities.collectRollouts(input))).rejects.toMatchObject({
    type: 'NodeDraining',
    nonRetryable: false,
  });
  await harness.attempt(name('collect'), () => activities.collectRollouts(input), 2);
  const recoveries = recoveriesOf(await readAttemptsIn(harness.store, run, step));
  expect(recoveries).toMatchObject([{ cause: 'node_drained' }]);
  expect(recoveries[0]?.lost.episodes).toBeGreaterThan(0);
});
