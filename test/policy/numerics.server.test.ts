// A node whose engine has other numerics than the run's records does not get the run (R18).
import { describe, expect, it } from 'vitest';
import type { LeaseRequest } from '../../src/activities/contracts.js';
import { createNodeActivities } from '../../src/activities/node-activities.js';
import type { NodeDeps } from '../../src/activities/node-deps.js';
import { createOrchestratorActivities } from '../../src/activities/orchestrator-activities.js';
import type { Numerics } from '../../src/spec/records/numerics.js';
import { updateKey } from '../../src/store/record-keys.js';
import { lastSftStep, run } from '../activities/fixture.js';
import { harness, useHarness } from '../activities/own-harness.js';

useHarness();

/** Raises the engine's numerics version, as an upgrade on the same machine would. */
async function upgrade(deps: NodeDeps): Promise<{ old: Numerics; raised: Numerics }> {
  const { engine } = deps.holder;
  const info = await engine.info();
  const old = info.numerics;
  const raised: Numerics = { ...old, version: old.version + 1 };
  engine.info = () => Promise.resolve({ ...info, numerics: raised });
  return { old, raised };
}

describe('a node whose engine was upgraded to other numerics', () => {
  const step = lastSftStep + 1;
  const unfit = ({ old, raised }: { old: Numerics; raised: Numerics }) => ({
    type: 'EngineUnfit',
    nonRetryable: true,
    message: expect.stringMatching(
      `numerics cpu/${raised.version}.*${run} .*cpu/${old.version}.*Start .* cpu/${old.version}`,
    ) as string,
  });

  it('computes no update, whether it holds the state or must restore it', async () => {
    await harness.advance(step - 2);
    const reference = harness.reference(await harness.plan(step - 1));
    const other = harness.secondNode();
    for (const deps of [harness.node, other]) {
      const numerics = await upgrade(deps);
      const { updatePolicy } = createNodeActivities(deps);
      const update = harness.attempt('update', () => updatePolicy(reference));
      await expect(update).rejects.toMatchObject(unfit(numerics));
    }
    expect(await harness.store.head(updateKey(run, step - 1))).toBeNull();
    expect((await other.holder.engine.stats())['updates']).toBe(0);
  });

  it.each(['collectRollouts', 'evaluateState', 'saveState'] as const)('does no %s', async (name) => {
    await harness.advance(step - 1);
    const reference = harness.reference(await harness.plan(step));
    const other = harness.secondNode();
    const numerics = await upgrade(other);
    const activities = createNodeActivities(other);
    const use = {
      collectRollouts: () => activities.collectRollouts({ ...reference, slots: [0, 1] }),
      evaluateState: () => activities.evaluateState({ ...reference, step: step - 1, suite: 'interval' }),
      saveState: () => activities.saveState({ ...reference, step: step - 1 }),
    }[name];
    await expect(harness.attempt<unknown>(name, use)).rejects.toMatchObject(unfit(numerics));
    const stats = await other.holder.engine.stats();
    expect(stats['updates']).toBe(0);
  });
});

describe('the request for a node', () => {
  const request = {
    ...{ lease: `${run}/first/1`, run, workflowId: `train/${run}`, firstExecutionRunId: 'first' },
    ...{ project: 'tests', priority: 0, besides: [] },
  };

  const asked = async (): Promise<unknown> => {
    const heard: LeaseRequest[] = [];
    const { requestLease } = createOrchestratorActivities({
      ...harness.orchestrator,
      requestLease: async (said) => {
        heard.push(said);
      },
    });
    await harness.attempt('place/1', () => requestLease(request));
    return heard;
  };

  it('names the numerics of the run’s records, and before there are any those of the spec', async () => {
    await harness.open();
    expect(await asked()).toEqual([{ ...request, numerics: null }]);
    await harness.advance(0);
    const { numerics } = await harness.engine.info();
    expect(await asked()).toEqual([{ ...request, numerics }]);
  });

  it('of a run in bf16 says so', async () => {
    const spec = harness.spec as { model: object };
    spec.model = { ...spec.model, numerics: 'bf16-sm90' };
    await harness.open();
    expect(await asked()).toEqual([{ ...request, numerics: null, backend: 'bf16-sm90' }]);
    await expect(harness.advance(0)).rejects.toThrow(/LONGHAUL_NUMERICS=bf16-sm90/);
  });
});
