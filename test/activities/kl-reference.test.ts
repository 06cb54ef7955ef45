// A KL term is taken against the weights that the run began with, whichever engine applies the update and whatever it held before:
// the plan names them by digest.
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { auditRun } from '../../src/activities/audit-run.js';
import { collectRollouts } from '../../src/activities/collect-rollouts.js';
import type { CommittedStep } from '../../src/activities/contracts.js';
import { recordControl } from '../../src/activities/record-control.js';
import { updatePolicy } from '../../src/activities/update-policy.js';
import type { EnvironmentServer } from '../../src/environments/server/environment-server.js';
import type { Digest, PlanRecord } from '../../src/spec/records.js';
import { episodeKey } from '../../src/store/layout.js';
import { encodeRecord } from '../../src/store/record-codec.js';
import { requireRecord } from '../../src/store/records.js';
import { readBase, readPlan, readState, readUpdate } from '../../src/store/run-records.js';
import { type Harness, lastSftStep, run, startEnvironments, startHarness, tamper } from './fixture.js';

const step = lastSftStep + 1;
const terms = { use_kl_loss: true, kl_loss_coef: 0.5, use_entropy_loss: true };

let environments: EnvironmentServer;
let harness: Harness;
beforeAll(async () => {
  environments = await startEnvironments();
});
afterAll(() => environments.close());
beforeEach(async () => {
  harness = await startHarness(environments);
});
afterEach(() => harness.close());

const open = (trainer: object = terms) =>
  harness.open({ ...harness.spec, trainer: { ...(harness.spec['trainer'] as object), ...trainer } });

async function planOf(at: number): Promise<PlanRecord> {
  return (await readPlan(harness.store, run, at)).record;
}

/** Takes a GRPO step in which the first sample has passed: without that there is nothing to learn from. */
async function take(at: number, deps = harness.node, control = 0): Promise<CommittedStep> {
  const planned = await harness.plan(at, control);
  const reference = harness.reference(planned);
  await harness.attempt(`step-${at}/collect`, () =>
    collectRollouts(deps, { ...reference, slots: [0, planned.slots] }),
  );
  const key = episodeKey(run, at, 0, 0);
  const record = await requireRecord(harness.store, key, 'episode');
  const bytes = await encodeRecord('episode', { ...record, outcome: { status: 'graded', value: 1 } });
  await tamper(harness.store, key, () => bytes);
  return harness.attempt(`step-${at}/update`, () => updatePolicy(deps, reference));
}

const firstWeights = async (): Promise<Digest> => (await readBase(harness.store, run)).identity.weights!;

describe('a run with a KL term', () => {
  it('takes it against the weights of its state 0, as its plans say, and records how far it is', async () => {
    await open();
    await harness.advance(lastSftStep);
    expect((await planOf(lastSftStep)).reference).toBeUndefined();
    expect(await take(step)).toMatchObject({ applied: true });
    const plan = await planOf(step);
    expect(plan.reference).toBe(await firstWeights());
    expect(plan.loss).toMatchObject({ kl_weight: 0.5, kl_estimator: 'k3', entropy_weight: 0.01 });
    const { metrics } = (await readUpdate(harness.store, run, step)).observed;
    // Two supervised steps have moved the policy away from there.
    expect(metrics['policy/policy_kl']).toBeGreaterThan(0);
    expect(metrics['policy/policy_entropy']).toBeGreaterThan(0);
    expect((await auditRun(harness.store, run)).violations).toEqual([]);
  });

  it('comes out otherwise than without', async () => {
    await open();
    await harness.advance(lastSftStep);
    const { state } = await take(step);
    await harness.close();
    harness = await startHarness(environments);
    await open({});
    await harness.advance(lastSftStep);
    expect((await take(step)).state).not.toBe(state);
    expect((await planOf(step)).reference).toBeUndefined();
  });

  it('is applied alike by an engine that begins with nothing', async () => {
    await open();
    await harness.advance(lastSftStep);
    await take(step);
    const other = harness.secondNode();
    await other.holder.withState(run, step, () => Promise.resolve());
    expect(await other.holder.engine.held()).toMatchObject({
      state: await readState(harness.store, run, step),
      reference: await firstWeights(),
    });
    expect(await take(step + 1, other)).toMatchObject({ applied: true });
  });

  it.each([
    ['has forgotten them', () => harness.engine.setReference(null)],
    ['was started anew', () => harness.engine.restart()],
    ['holds another run’s', () => harness.engine.setReference({ held: true })],
  ])('has its engine know them again where it %s', async (_, forget) => {
    await open();
    await harness.advance(lastSftStep);
    const planned = await harness.plan(step);
    await forget();
    expect((await harness.engine.held())?.reference ?? null).not.toBe(await firstWeights());
    expect(await take(planned.step)).toMatchObject({ applied: true });
    expect((await harness.engine.held())?.reference).toBe(await firstWeights());
  });

  it('may have its weight set while it is under way, down to none', async () => {
    await open();
    await harness.advance(lastSftStep);
    const set = (updateId: string, kl_loss_coef: number) =>
      recordControl(harness.orchestrator, {
        ...{ run, owner: 1, updateId },
        change: { kind: 'setHyperparameters', kl_loss_coef },
      });
    await set('a', 0.25);
    await take(step, harness.node, 1);
    expect((await planOf(step)).loss.kl_weight).toBe(0.25);
    await set('b', 0);
    await take(step + 1, harness.node, 2);
    expect((await planOf(step + 1)).loss).not.toHaveProperty('kl_weight');
    expect((await planOf(step + 1)).reference).toBeUndefined();
    expect((await auditRun(harness.store, run)).violations).toEqual([]);
  });
});
