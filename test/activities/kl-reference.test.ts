// A KL term is taken against the weights that the run began with, whichever engine applies the update and whatever it held before:
// the plan names them by digest.
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { auditRun } from '../../src/activities/audit-run.js';
import { recordControl } from '../../src/activities/record-control.js';
import type { EnvironmentServer } from '../../src/environments/server/environment-server.js';
import type { Digest } from '../../src/spec/records.js';
import { readBase, readState, readUpdate } from '../../src/store/run-records.js';
import { type Harness, lastSftStep, run, startEnvironments, startHarness } from './fixture.js';
import { begin, planOf, step, take } from './objective-step.js';

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

const firstWeights = async (): Promise<Digest> => (await readBase(harness.store, run)).identity.weights!;

describe('a run with a KL term', () => {
  it('takes it against the weights of its state 0, as its plans say, and records how far it is', async () => {
    await begin(harness, terms);
    expect((await planOf(harness, lastSftStep)).reference).toBeUndefined();
    expect(await take(harness, step)).toMatchObject({ applied: true });
    const plan = await planOf(harness, step);
    expect(plan.reference).toBe(await firstWeights());
    expect(plan.loss).toMatchObject({ kl_weight: 0.5, kl_estimator: 'k3', entropy_weight: 0.01 });
    const { metrics } = (await readUpdate(harness.store, run, step)).observed;
    // Two supervised steps have moved the policy away from there.
    expect(metrics['policy/policy_kl']).toBeGreaterThan(0);
    expect(metrics['policy/policy_entropy']).toBeGreaterThan(0);
    expect((await auditRun(harness.store, run)).violations).toEqual([]);
  });

  it('comes out otherwise than without', async () => {
    await begin(harness, terms);
    const { state } = await take(harness, step);
    await harness.close();
    harness = await startHarness(environments);
    await begin(harness, {});
    expect((await take(harness, step)).state).not.toBe(state);
    expect((await planOf(harness, step)).reference).toBeUndefined();
  });

  it('is applied alike by an engine that begins with nothing', async () => {
    await begin(harness, terms);
    await take(harness, step);
    const other = harness.secondNode();
    await other.holder.withState(run, step, () => Promise.resolve());
    expect(await other.holder.engine.held()).toMatchObject({
      state: await readState(harness.store, run, step),
      reference: await firstWeights(),
    });
    expect(await take(harness, step + 1, { deps: other })).toMatchObject({ applied: true });
  });

  it.each([
    ['has forgotten them', () => harness.engine.setReference(null)],
    ['was started anew', () => harness.engine.restart()],
    ['holds another run’s', () => harness.engine.setReference({ held: true })],
  ])('has its engine know them again where it %s', async (_, forget) => {
    await begin(harness, terms);
    const planned = await harness.plan(step);
    await forget();
    expect((await harness.engine.held())?.reference ?? null).not.toBe(await firstWeights());
    expect(await take(harness, planned.step)).toMatchObject({ applied: true });
    expect((await harness.engine.held())?.reference).toBe(await firstWeights());
  });

  it('may have its weight set while it is under way, down to none', async () => {
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
    expect((await auditRun(harness.store, run)).violations).toEqual([]);
  });
});
