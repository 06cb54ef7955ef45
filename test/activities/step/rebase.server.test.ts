// Rebase (R18): if no node has a run's numerics any more, a new run applies the same logged batches with other numerics and continues.
import { describe, expect, test } from 'vitest';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import { createNodeActivities } from '../../../src/activities/node-activities.js';
import { forkSpec } from '../../../src/activities/run/fork-run.js';
import { planStep } from '../../../src/activities/step/plan-step.js';
import { requestLease } from '../../../src/activities/run/request-lease.js';
import type { LeaseRequest } from '../../../src/activities/contracts.js';
import { replayUpdates } from '../../../src/activities/reports/replay-audit.js';
import type { FileEngine } from '../../../src/engine/file-engine.js';
import type { PlanRecord } from '../../../src/spec/records/plan.js';
import type { Numerics } from '../../../src/spec/records/numerics.js';
import type { ForkSpec } from '../../../src/spec/run-spec.js';
import { canonicalText, recordDigest } from '../../../src/store/records/canonical.js';
import { decodeBatchFile } from '../../../src/store/files/batch-file.js';
import { planCollection } from '../../../src/store/collection/collection.js';
import { batchKey, episodesFolder, planKey } from '../../../src/store/record-keys.js';
import { encodeRecord } from '../../../src/store/records/record-codec.js';
import { requireRecord } from '../../../src/store/records/records.js';
import { readUpdate } from '../../../src/store/runs/run-records.js';
import { spentInAll } from '../../../src/rl/spending.js';
import { type NativeNode, run, tamper, workflow } from '../fixture.js';
import {
  advance,
  copy,
  fork,
  harness,
  last,
  messageOf,
  open,
  statesOf,
  useRunToFork,
} from '../run/run-to-fork.js';

useRunToFork();

const checkpoint = 2;
const rebasedSteps = [3, 4, 5];

async function raised(): Promise<Numerics> {
  const { numerics } = await harness.engine.info();
  return { ...numerics, version: numerics.version + 1 };
}

async function rebase(): Promise<ForkSpec> {
  return { run, step: checkpoint, rebase: { to: last, numerics: await raised() } };
}

/**
 * Runs `use` while the node's engine computes like another device: the name of its numerics is different, and so is the epsilon that Adam
 * adds to a denominator, by the share `bits`.
 */
async function onOtherArithmetic<T>(deps: NativeNode, use: () => Promise<T>, bits = 1e-3): Promise<T> {
  const { engine } = deps.holder;
  const real = { info: engine.info.bind(engine), update: engine.update.bind(engine) };
  const numerics = await raised();
  engine.info = async () => ({ ...(await real.info()), numerics });
  engine.update = ((order, ...rest) =>
    real.update({ ...order, adam_eps: order.adam_eps * (1 + bits) }, ...rest)) satisfies FileEngine['update'];
  try {
    return await use();
  } finally {
    Object.assign(engine, real);
  }
}

describe('a rebase', () => {
  test('applies its parent’s logged batches, reaches other states, samples nothing, and continues', async () => {
    const { opened } = await fork(run, await rebase());
    const of = opened.outline.run;
    expect(of).toBe(`${run}~2`);
    expect(opened.position).toMatchObject({ step: checkpoint, lastCheckpoint: checkpoint });
    const before = await harness.engine.stats();
    await onOtherArithmetic(harness.node, () => advance(of, opened.owner, last));
    const sampled = async () => (await harness.engine.stats())['generated_tokens'];
    expect(await sampled()).toBe(before['generated_tokens']);

    const [parents, own] = [await statesOf(run, rebasedSteps), await statesOf(of, rebasedSteps)];
    expect(own.filter((state) => parents.includes(state))).toEqual([]);
    for (const step of rebasedSteps) {
      const [theirs, ours] = await Promise.all([run, of].map((one) => readUpdate(harness.store, one, step)));
      expect(ours!.identity).toMatchObject({
        numerics: await raised(),
        outcomes: theirs!.identity.outcomes,
        kind: theirs!.identity.kind,
      });
      expect(await arraysOf(of, step)).toEqual(await arraysOf(run, step));
      expect(await harness.store.listFolder(episodesFolder(of, step))).toEqual([]);
    }

    await onOtherArithmetic(harness.node, () => advance(of, opened.owner, last + 1));
    expect(await harness.store.listFolder(episodesFolder(of, last + 1))).not.toEqual([]);
    expect((await auditRun(harness.store, of)).violations).toEqual([]);
  });

  test('reaches its parent’s states if the arithmetic is the same: nothing else differs', async () => {
    const { opened } = await fork('same-bits', await rebase());
    await onOtherArithmetic(harness.node, () => advance('same-bits', opened.owner, last), 0);
    expect(await statesOf('same-bits', rebasedSteps)).toEqual(await statesOf(run, rebasedSteps));
  });

  test('can be replayed from its own records', async () => {
    const { opened } = await fork('replayed', await rebase());
    await onOtherArithmetic(harness.node, () => advance('replayed', opened.owner, last));
    const other = harness.secondNode();
    const replayed = await onOtherArithmetic(other, () =>
      replayUpdates({ store: harness.store, engine: other.holder.engine, log: () => undefined }, 'replayed', {
        from: 3,
        to: last,
      }),
    );
    expect(replayed.equal).toBe(true);
  });

  test('uses no tokens of a budget, and leaves a collection nothing to fold', async () => {
    const { opened } = await fork('counted', await rebase());
    await onOtherArithmetic(harness.node, () => advance('counted', opened.owner, last));
    const updates = await Promise.all(rebasedSteps.map((step) => readUpdate(harness.store, 'counted', step)));
    expect(spentInAll('counted', updates).tokens).toBe(0);
    expect(spentInAll('counted', updates).gpu_seconds).toBeGreaterThan(0);
    const plan = await planCollection(harness.store, 'counted', {
      retention: { keep_last: 1e6, keep_every: 0, keep_best: 0 },
    });
    expect(plan.episodes).toEqual([]);
  });

  test('needs its own numerics: a node with its parent’s numerics is refused', async () => {
    const { opened } = await fork('moved', await rebase());
    const { updatePolicy } = createNodeActivities(harness.node);
    const reference = { run: 'moved', step: 3, owner: opened.owner };
    const planned = await planStep(harness.orchestrator, { ...reference, control: 0 });
    expect(planned.kind).toBe('rebased');
    const update = harness.attempt('update', () => updatePolicy({ ...reference, plan: planned.plan }));
    await expect(update).rejects.toMatchObject({ type: 'EngineUnfit' });
  });

  test('asks the pool for a node with its own numerics', async () => {
    const { opened } = await fork('asking', await rebase());
    const asked: LeaseRequest[] = [];
    const deps = {
      ...harness.orchestrator,
      requestLease: (request: LeaseRequest) => Promise.resolve(void asked.push(request)),
    };
    const { workflowId, firstExecutionRunId } = workflow;
    const place = { lease: 'l', besides: [], project: 'tests', priority: 0, workflowId, firstExecutionRunId };
    for (const name of [opened.outline.run, run]) await requestLease(deps, { ...place, run: name });
    const { numerics } = await harness.engine.info();
    expect(asked.map((request) => request.numerics)).toEqual([await raised(), numerics]);
  });

  test('is refused if it ends after its parent’s last step, or before its own first step', async () => {
    const { rebase: whole, ...from } = await rebase();
    for (const to of [checkpoint - 1, last + 1]) {
      const spec = {
        ...(await forkSpec(harness.store, 'refused', from)),
        fork: { ...from, rebase: { ...whole!, to } },
      };
      expect(await messageOf(open(spec, await copy()))).toMatch(
        new RegExp(`fork\\.rebase\\.to: step ${to} is not one of the committed steps 2 to 5 of ${run}`),
      );
    }
  });

  test('of a run that has committed all of its steps is refused, and the message says so', async () => {
    const of = await rebase();
    const spec = await forkSpec(harness.store, 'over', of);
    const over = { ...spec, trainer: { ...spec.trainer, max_training_steps: 3 } };
    expect(await messageOf(open(over, await copy()))).toMatch(
      /unit has committed all of its 5 steps: nothing is left to train with other numerics; raise it: --set max_training_steps=N/,
    );
  });

  test('with a plan that differs from its source’s plan is found by the audit', async () => {
    const { opened } = await fork('doctored', await rebase());
    await onOtherArithmetic(harness.node, () => advance('doctored', opened.owner, 3));
    const key = planKey('doctored', 3);
    const plan = await requireRecord(harness.store, key, 'plan');
    const other: PlanRecord = { ...plan, optimizer: { ...plan.optimizer, max_grad_norm: 7 } };
    const bytes = await encodeRecord('plan', other);
    await tamper(harness.store, key, () => bytes);
    const { violations } = await auditRun(harness.store, 'doctored');
    expect(violations).toContainEqual(
      expect.objectContaining({
        rule: 'R7',
        key,
        problem: expect.stringContaining('gives another plan: optimizer.max_grad_norm (stored 7,') as string,
      }),
    );
    expect(recordDigest(other)).not.toBe(recordDigest(plan));
  });
});

async function arraysOf(of: string, step: number): Promise<string> {
  const key = batchKey(of, step);
  const { arrays } = decodeBatchFile((await harness.store.get(key)) as Uint8Array, key);
  return canonicalText(
    Object.fromEntries(Object.entries(arrays).map(([name, values]) => [name, [...values]])),
  );
}
