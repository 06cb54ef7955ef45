// A result that differs from its record is computed again, on a fresh engine and from an older checkpoint (R19).
import { beforeEach, describe, expect, it } from 'vitest';
import { createNodeActivities } from '../../../src/activities/node-activities.js';
import type { NodeDeps } from '../../../src/activities/node-deps.js';
import { saveState } from '../../../src/activities/step/save-state.js';
import { updatePolicy } from '../../../src/activities/step/update-policy.js';
import { updateKey } from '../../../src/store/record-keys.js';
import { readState, readUpdate } from '../../../src/store/runs/run-records.js';
import { run, tamper } from '../fixture.js';
import { signedAgain } from '../../support/signed-again.js';
import { harness, keptFailures, useHarness } from '../own-harness.js';

useHarness();
beforeEach(async () => {
  await harness.advance(step - 1);
});

/** A supervised step: it changes the state and needs no episodes. */
const step = 2;
const wrong = 'f'.repeat(64);

async function sealed(): Promise<(deps: NodeDeps) => ReturnType<typeof updatePolicy>> {
  const reference = harness.reference(await harness.plan(step));
  return (deps) => harness.attempt('update', () => updatePolicy(deps, reference));
}

/**
 * Makes the first `times` results of the node's engine for this step wrong, while another node commits the right result. Returns the
 * engine's actions in order.
 */
function wrongAtFirst(times: number, commit: () => Promise<unknown>): string[] {
  const { holder } = harness.node;
  const { engine } = holder;
  const { update, restart } = engine;
  const did: string[] = [];
  let left = times;
  let committed: Promise<unknown> | null = null;
  engine.update = async (request) => {
    const result = await update(request);
    const batch = (await readUpdate(harness.store, run, 1)).identity.batch;
    if (request.batchSha256 === batch) return result;
    await (committed ??= commit());
    did.push(left > 0 ? 'wrong' : 'right');
    return left-- > 0 ? { ...result, state: wrong } : result;
  };
  engine.restart = async () => {
    // Readers of the engine's state must wait during the restart, because it drops that state.
    let read = false;
    const stop = new AbortController();
    const attempt = { signal: stop.signal, progress: () => undefined };
    const reading = holder.withState(run, step - 1, 'visitor', () => Promise.resolve((read = true)), attempt);
    await new Promise((resolve) => setImmediate(resolve));
    stop.abort(new Error('has seen enough'));
    await reading.catch(() => undefined);
    did.push(read ? 'restarted beside a reader' : 'restarted');
    await restart();
  };
  return did;
}

type Kept = { state: string };

async function keptResults(): Promise<{ stored: string; computed: string }[]> {
  const kept = (await keptFailures(run, step)) as { verb: string; stored: Kept; computed: Kept }[];
  expect(kept.filter(({ verb }) => verb !== 'update')).toEqual([]);
  return kept.map(({ stored, computed }) => ({ stored: stored.state, computed: computed.state }));
}

describe('a restore that disagrees with the records', () => {
  it('writes both results into the attempt record of the activity that needed the state', async () => {
    await harness.advance(step);
    const state = await readState(harness.store, run, step);
    await tamper(harness.store, updateKey(run, step), (bytes) =>
      signedAgain(bytes.toString().replaceAll(state, wrong)),
    );
    const { saveState: activity } = createNodeActivities(harness.secondNode());
    const saving = harness.attempt('save', () => activity({ run, step, owner: 1 }));
    await expect(saving).rejects.toMatchObject({ type: 'Diverged', nonRetryable: true });
    expect(await keptFailures(run, step, 'save/')).toMatchObject([
      { verb: 'save', key: updateKey(run, step), stored: wrong, computed: state },
    ]);
  });
});

describe('an update that disagrees with the record of another node', () => {
  it('is computed again on a fresh engine, and agrees', async () => {
    const update = await sealed();
    const other = harness.secondNode();
    const did = wrongAtFirst(1, () => update(other));
    const committed = await update(harness.node);
    const state = await readState(harness.store, run, step);
    expect(committed.state).toBe(state);
    expect(did).toEqual(['wrong', 'restarted', 'right']);
    expect(await keptResults()).toEqual([{ stored: state, computed: wrong }]);
    expect((await harness.engine.held())?.state).toBe(state);
  });

  it('is computed a third time, from an older checkpoint', async () => {
    await harness.attempt('save', () => saveState(harness.node, { run, step: step - 1, owner: 1 }));
    const update = await sealed();
    const other = harness.secondNode();
    const did = wrongAtFirst(2, () => update(other));
    expect((await update(harness.node)).state).toBe(await readState(harness.store, run, step));
    expect(did).toEqual(['wrong', 'restarted', 'wrong', 'restarted', 'right']);
    const how = harness.said.filter((line) => line.startsWith(`restored ${run} step ${step - 1}`));
    expect(how.slice(-2)).toEqual([
      `restored ${run} step ${step - 1}: its saved state`,
      `restored ${run} step ${step - 1}: checkpoint 0 and 1 logged updates`,
    ]);
  });

  it('blocks the run if it never agrees: all results are kept, and the message says how to continue', async () => {
    const update = await sealed();
    const other = harness.secondNode();
    wrongAtFirst(3, () => update(other));
    await expect(update(harness.node)).rejects.toMatchObject({
      name: 'Diverged',
      message: expect.stringMatching(/longhaul audit unit --replay 2\.\.2.*longhaul resume unit/s) as string,
    });
    const state = await readState(harness.store, run, step);
    expect(await keptResults()).toEqual(Array(3).fill({ stored: state, computed: wrong }));
    // The stored record stays valid, and a resumed run continues from it.
    expect((await update(harness.node)).state).toBe(state);
    expect(await harness.store.head(updateKey(run, step))).not.toBeNull();
  });
});
