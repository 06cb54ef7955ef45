// A KL term compares with the policy at the start of GRPO, whichever engine applies the update and whatever it held before. The plan names
// that policy's weights by digest.
import { describe, expect, it } from 'vitest';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import { commitBase } from '../../../src/activities/step/commit-base.js';
import { forkSpec } from '../../../src/activities/run/fork-run.js';
import { openRun } from '../../../src/activities/run/open-run.js';
import { planStep } from '../../../src/activities/step/plan-step.js';
import { recordControl } from '../../../src/activities/run/record-control.js';
import { replayUpdates } from '../../../src/activities/reports/replay-audit.js';
import { updatePolicy } from '../../../src/activities/step/update-policy.js';
import type { Digest } from '../../../src/spec/records/parts.js';
import { weightsManifestKey } from '../../../src/store/record-keys.js';
import { readBase, readPlan, readRun, readState, readUpdate } from '../../../src/store/runs/run-records.js';
import { lastSftStep, run, tamper, workflow } from '../fixture.js';
import { begin, beginCold, planOf, specWith, step, take } from './objective-step.js';
import { harness, startAnother, useHarness } from '../own-harness.js';

const terms = { use_kl_loss: true, kl_loss_coef: 0.5, use_entropy_loss: true };

useHarness();

const firstWeights = async (): Promise<Digest> => (await readBase(harness.store, run)).identity.weights!;
const warmWeights = async (): Promise<Digest> =>
  (await readUpdate(harness.store, run, lastSftStep)).identity.weights!;
const klOf = async (at: number) =>
  (await readUpdate(harness.store, run, at)).observed.metrics['policy/policy_kl'];
const violations = async () => (await auditRun(harness.store, run)).violations;

describe('a run with a KL term', () => {
  it('compares with the policy after its warm start, as its plans say, and records the distance', async () => {
    await begin(harness, terms);
    expect((await planOf(harness, lastSftStep)).reference).toBeUndefined();
    expect(await take(harness, step)).toMatchObject({ applied: true });
    const plan = await planOf(harness, step);
    expect(plan.reference).toBe(await warmWeights());
    expect(plan.reference).not.toBe(await firstWeights());
    expect(plan.loss).toMatchObject({ kl_weight: 0.5, kl_estimator: 'k3', entropy_weight: 0.01 });
    const { metrics } = (await readUpdate(harness.store, run, step)).observed;
    expect(metrics['policy/policy_kl']).toBe(0);
    expect(metrics['policy/policy_entropy']).toBeGreaterThan(0);
    expect(await take(harness, step + 1)).toMatchObject({ applied: true });
    expect(await klOf(step + 1)).toBeGreaterThan(0);
    expect(await violations()).toEqual([]);
  });

  it('compares with the initial weights if it has no warm start', async () => {
    await beginCold(harness, terms);
    expect(await take(harness, 1)).toMatchObject({ applied: true });
    expect((await planOf(harness, 1)).reference).toBe(await firstWeights());
    expect(await klOf(1)).toBe(0);
    expect(await violations()).toEqual([]);
  });

  it('reaches other states than a run without it', async () => {
    await begin(harness, terms);
    const { state } = await take(harness, step);
    const weights = await warmWeights();
    await harness.close();
    await startAnother();
    await begin(harness, {});
    // These weights are recorded for every run, because a fork of it may have a KL term.
    expect(await warmWeights()).toBe(weights);
    expect((await take(harness, step)).state).not.toBe(state);
    expect((await planOf(harness, step)).reference).toBeUndefined();
  });

  it('stores the reference weights for other nodes, which need nothing else of the warm start', async () => {
    await begin(harness, terms);
    await take(harness, step);
    const other = harness.secondNode();
    await other.holder.withState(run, step, 'visitor', () => Promise.resolve());
    expect(await other.holder.engine.held()).toMatchObject({
      state: await readState(harness.store, run, step),
      reference: await warmWeights(),
    });
    expect(await take(harness, step + 1, { deps: other })).toMatchObject({ applied: true });
    expect(await violations()).toEqual([]);
  });

  it.each<[string, (key: string) => void | Promise<void>]>([
    ['are gone', (key) => harness.store.delete(key)],
    [
      'are damaged',
      (key) =>
        tamper(harness.store, key.replace('manifest.json', 'weights.safetensors'), (bytes) =>
          bytes.fill(7, 99),
        ),
    ],
  ])('computes the reference weights again from the records if they %s', async (_, spoil) => {
    await begin(harness, terms);
    await take(harness, step);
    const weights = await warmWeights();
    await spoil(weightsManifestKey(weights));
    const other = harness.secondNode();
    expect(await take(harness, step + 1, { deps: other })).toMatchObject({ applied: true });
    expect(await other.holder.engine.held()).toMatchObject({ reference: weights });
    expect(await violations()).toEqual([]);
  });

  it.each([
    ['has forgotten it', () => harness.engine.setReference(null)],
    ['was restarted', () => harness.engine.restart()],
    [
      'holds the reference of another run',
      async () => {
        const { architecture, initializer_range } = (await readRun(harness.store, run)).spec.model;
        await harness.engine.loadRandom({ architecture: architecture!, initializer_range, seed: 9 });
        await harness.engine.setReference({ held: true });
      },
    ],
  ])('sets the reference again if its engine %s', async (_, forget) => {
    await begin(harness, terms);
    await take(harness, step);
    const planned = await harness.plan(step + 1);
    await forget();
    expect((await harness.engine.held())?.reference ?? null).not.toBe(await warmWeights());
    expect(await take(harness, planned.step)).toMatchObject({ applied: true });
    expect((await harness.engine.held())?.reference).toBe(await warmWeights());
  });

  it('may have the term’s weight changed while it runs, also to 0', async () => {
    await begin(harness, terms);
    const set = (updateId: string, kl_loss_coef: number) =>
      recordControl(harness.orchestrator, {
        ...{ run, owner: 1, updateId },
        change: { kind: 'setHyperparameters', kl_loss_coef },
      });
    await set('a', 0.25);
    await take(harness, step, { control: 1 });
    expect((await planOf(harness, step)).loss.kl_weight).toBe(0.25);
    await set('b', 0);
    await take(harness, step + 1, { control: 2 });
    expect((await planOf(harness, step + 1)).loss).not.toHaveProperty('kl_weight');
    expect((await planOf(harness, step + 1)).reference).toBeUndefined();
    expect(await violations()).toEqual([]);
  });

  it('is refused with adapters after a warm start, because no weights file contains them', async () => {
    const spec = specWith(harness, terms, { lora: { rank: 2, alpha: 4 } });
    await expect(harness.open(spec)).rejects.toThrow(
      /trainer\.use_kl_loss: needs fixed weights to compare with, but after a warm start the adapters of model\.lora .*longhaul export/s,
    );
  });
});

describe('a fork', () => {
  const name = 'forked';

  /** Takes the fork's next step, on a node without any state. */
  async function forkAt(at: number, trainer: object) {
    const spec = await forkSpec(harness.store, name, { run, step: at });
    const opened = await openRun(harness.orchestrator, {
      spec: { ...spec, trainer: { ...spec.trainer, ...trainer } },
      workflow: { ...workflow, workflowId: `train/${name}` },
    });
    return take(harness, at + 1, { deps: harness.secondNode(), of: { run: name, owner: opened.owner } });
  }

  it('compares with the same weights as its parent’s KL terms', async () => {
    await begin(harness, terms);
    await take(harness, step);
    expect(await forkAt(step, { lr: 0.02 })).toMatchObject({ applied: true });
    expect((await readPlan(harness.store, { run: name, step: step + 1 })).reference).toBe(
      await warmWeights(),
    );
    expect((await auditRun(harness.store, name)).violations).toEqual([]);
  });

  it('of a run without a KL term may have a KL term, which compares with the policy after their common warm start', async () => {
    await begin(harness, {});
    await take(harness, step);
    expect(await forkAt(step, terms)).toMatchObject({ applied: true });
    expect((await readPlan(harness.store, { run: name, step: step + 1 })).reference).toBe(
      await warmWeights(),
    );
    expect((await auditRun(harness.store, name)).violations).toEqual([]);
  });

  it('without its parent’s KL term drops the reference in its engine, and its replay gives the same states', async () => {
    await begin(harness, terms);
    await take(harness, step);
    await forkAt(step, { use_kl_loss: false });
    const engine = harness.secondNode().holder.engine;
    const replay = await replayUpdates({ store: harness.store, engine, log: () => undefined }, name, {
      from: step,
      to: step + 1,
    });
    expect(replay.equal).toBe(true);
  });
});

describe('a rebase', () => {
  it('compares with the weights after its own warm start, which its other numerics have changed', async () => {
    await begin(harness, terms);
    await take(harness, step);
    const node = harness.secondNode();
    const { engine } = node.holder;
    const { info, update } = engine;
    const { numerics } = await engine.info();
    const raised = { ...numerics, version: numerics.version + 1 };
    engine.info = async () => ({ ...(await info()), numerics: raised });
    engine.update = (order, ...rest) => update({ ...order, adam_eps: order.adam_eps * 1.001 }, ...rest);
    const rebased = 'rebased';
    const spec = await forkSpec(harness.store, rebased, {
      run,
      step: 0,
      rebase: { to: step, numerics: raised },
    });
    const { owner } = await openRun(harness.orchestrator, {
      spec,
      workflow: { ...workflow, workflowId: `train/${rebased}` },
    });
    for (let at = 1; at <= step; at++) {
      const reference = { run: rebased, step: at, owner };
      const { plan } = await planStep(harness.orchestrator, { ...reference, control: 0 });
      await harness.attempt('update', () => updatePolicy(node, { ...reference, plan }));
    }
    const own = (await readUpdate(harness.store, rebased, lastSftStep)).identity.weights;
    expect(own).not.toBe(await warmWeights());
    expect((await readPlan(harness.store, { run: rebased, step })).reference).toBe(own);
    expect((await readUpdate(harness.store, rebased, step)).observed.metrics['policy/policy_kl']).toBe(0);
    expect((await auditRun(harness.store, rebased)).violations).toEqual([]);
  });
});

describe('an engine that holds reference weights', () => {
  it('drops them for a run without a KL term, because they take as much memory as a model', async () => {
    await begin(harness, terms);
    await take(harness, step);
    expect((await harness.engine.held())?.reference).toBe(await warmWeights());
    const other = { run: 'other', owner: 1 };
    await openRun(harness.orchestrator, {
      spec: { ...harness.spec, name: other.run, seed: 6 },
      workflow: { ...workflow, workflowId: `train/${other.run}` },
    });
    await harness.attempt('base', () => commitBase(harness.node, other));
    expect(await harness.engine.held()).toMatchObject({ reference: null });
  });

  it('drops them even if both runs have the same states', async () => {
    await begin(harness, {});
    await harness.engine.setReference({ held: true });
    await take(harness, step);
    expect(await harness.engine.held()).toMatchObject({ reference: null });
  });
});
