// What can happen to running episodes: the store does not answer, another worker is faster, progress is reported.
import { setTimeout as delay } from 'node:timers/promises';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { auditRun } from '../../../../src/activities/reports/audit-run.js';
import { collectRollouts } from '../../../../src/activities/step/collect-rollouts.js';
import type { PlannedStep } from '../../../../src/activities/contracts.js';
import type { NodeDeps } from '../../../../src/activities/node-deps.js';
import { waitOutStore } from '../../../../src/activities/attempt/store-patience.js';
import { EnvironmentError } from '../../../../src/environments/environment.js';
import type { AttemptRecord } from '../../../../src/spec/records/attempt-records.js';
import { recordDigest } from '../../../../src/store/records/canonical.js';
import { attemptsFolder, episodeKey, planKey } from '../../../../src/store/record-keys.js';
import type { ObjectStore } from '../../../../src/store/objects/object-store.js';
import { requireRecord } from '../../../../src/store/records/records.js';
import {
  StoreFull,
  StoreUnavailable,
  StoreUnfit,
  type UnreadableRecord,
} from '../../../../src/store/record-errors.js';
import { activityId, counting, lastSftStep, run, tamper } from '../../fixture.js';
import { harness, useHarness } from '../../own-harness.js';
import { overlaid } from '../../../store/overlaid-store.js';

const step = lastSftStep + 1;
const keys = [0, 1].flatMap((slot) => [0, 1].map((sample) => episodeKey(run, step, slot, sample)));

let planned: PlannedStep;
useHarness();
beforeEach(async () => {
  await harness.advance(lastSftStep);
  planned = await harness.plan(step);
});

const collect = (deps: NodeDeps, attempt = 1, progress: unknown[] = []) =>
  harness.attempt(
    activityId(step, 'collect'),
    () => collectRollouts(deps, harness.rollouts(planned)),
    attempt,
    progress,
  );

/** The harness's store, with other `create` or `head` functions. */
const storeWith = (changes: Partial<Pick<ObjectStore, 'create' | 'head'>>): ObjectStore =>
  overlaid(harness.store, changes);

const written = async (): Promise<string[]> => {
  const heads = await Promise.all(keys.map((key) => harness.store.head(key)));
  return keys.filter((_, i) => heads[i] !== null);
};

describe('a store that does not answer', () => {
  it.each(['create', 'head'] as const)(
    'at the %s of one episode makes that episode wait; the other episodes continue, and no episode is sampled twice',
    async (verb) => {
      const [slow, ...others] = keys;
      const { deps, calls } = counting(harness.node);
      let failuresLeft = 2;
      const writtenMeanwhile: string[][] = [];
      const progress: unknown[] = [];
      const fail = async (key: string): Promise<void> => {
        if (key !== slow || failuresLeft === 0) return;
        failuresLeft -= 1;
        await vi.waitFor(async () => expect(await written()).toEqual(others), { timeout: 120_000 });
        // Reports of later finished episodes would contain this wait too, so wait for them first.
        await vi.waitFor(
          () => expect(progress).toContainEqual(expect.objectContaining({ finished: 3 })),
          120_000,
        );
        writtenMeanwhile.push(await written());
        throw new StoreUnavailable('the store did not answer in time');
      };
      const store = storeWith({
        create: async (key, bytes) => {
          if (verb === 'create') await fail(key);
          return harness.store.create(key, bytes);
        },
        head: async (key) => {
          if (verb === 'head') await fail(key);
          return harness.store.head(key);
        },
      });
      expect(await collect({ ...deps, store }, 1, progress)).toMatchObject({ graded: 4, unknown: 0 });
      expect(writtenMeanwhile).toEqual([others, others]);
      expect(calls.generate).toBe(4);
      expect(
        progress.filter((details) => (details as { waiting?: string }).waiting === 'store'),
      ).toHaveLength(2);
    },
  );

  const lost = (code: string): Error =>
    Object.assign(new Error(`${code}: the folder is elsewhere`), { code });

  it.each([
    new StoreUnavailable('the store did not answer'),
    new StoreFull('no space is left'),
    lost('ESTALE'),
    lost('EIO'),
    lost('ETIMEDOUT'),
  ])('is waited for if waiting may help: $name, $message', async (error) => {
    let failuresLeft = 1;
    const use = () => (failuresLeft-- > 0 ? Promise.reject(error) : Promise.resolve('stored'));
    const waits: string[] = [];
    const patience = { signal: new AbortController().signal, onWait: () => void waits.push('store') };
    expect(await waitOutStore(use, patience)).toBe('stored');
    expect(waits).toEqual(['store']);
  });

  it('is given up at the deadline; other errors are not waited for', async () => {
    let waits = 0;
    const patience = { signal: new AbortController().signal, onWait: () => void (waits += 1), limitMs: 600 };
    const refusing = (error: Error) => waitOutStore(() => Promise.reject(error), patience);
    await expect(refusing(new StoreUnavailable('no answer'))).rejects.toThrow('no answer');
    // After pauses of 200 and 300 ms, the next pause of 450 ms would end after the limit.
    expect(waits).toBe(2);
    await expect(refusing(new StoreUnfit('access was refused'))).rejects.toThrow('access was refused');
    expect(waits).toBe(2);
  });

  it('is waited for only until the attempt ends', async () => {
    const stop = new AbortController();
    const waiting = waitOutStore(() => Promise.reject(new StoreUnavailable('no answer')), {
      signal: stop.signal,
      onWait: () => stop.abort(new Error('the run is paused')),
    });
    await expect(waiting).rejects.toThrow('the run is paused');
  });
});

describe('an episode', () => {
  it('waits for a call of its environment as long as the spec says', async () => {
    const limits = new Set<number>();
    const deps: NodeDeps = {
      ...harness.node,
      backendFor: (spec, callTimeoutMs) => {
        limits.add(callTimeoutMs);
        return harness.node.backendFor(spec, callTimeoutMs);
      },
    };
    await collect(deps);
    expect([...limits]).toEqual([60_000]);
  });

  it('that another worker finishes after this attempt’s announcement is adopted and never sampled (R9)', async () => {
    const { deps, calls } = counting(harness.node);
    const other = harness.secondNode();
    let answer: unknown;
    const store = storeWith({
      create: async (key, bytes) => {
        const created = await harness.store.create(key, bytes);
        if (key.startsWith(attemptsFolder(run, step)) && !answer) answer = await collect(other, 2);
        return created;
      },
    });
    const { graded, mean_reward, tokens } = await collect({ ...deps, store });
    expect(answer).toMatchObject({ graded, mean_reward, tokens });
    expect(graded).toBe(4);
    expect(calls.generate).toBe(0);
  });
});

describe('an attempt that is frozen between its look at the store and its announcement', () => {
  it.each([
    ['samples no episode that another attempt has finished meanwhile', false],
    ['is not blamed for these episodes if it dies right after its announcement', true],
  ])('%s (R9)', async (_, dies) => {
    const { deps, calls } = counting(harness.node);
    let answer: unknown;
    const store = storeWith({
      create: async (key, bytes) => {
        if (key.startsWith(attemptsFolder(run, step)) && !answer) {
          answer = await collect(harness.secondNode(), 2);
          // The announcement must be later than every record, even in listings with whole seconds.
          await delay(1_100);
        }
        const created = await harness.store.create(key, bytes);
        if (dies && answer) throw new StoreUnfit('killed');
        return created;
      },
    });
    const collecting = collect({ ...deps, store });
    if (dies) await expect(collecting).rejects.toThrow('killed');
    else expect(await collecting).toMatchObject({ graded: 4 });
    expect(calls.generate).toBe(0);
    const { violations } = await auditRun(harness.store, run);
    expect(violations.filter(({ rule }) => rule === 'R9')).toEqual([]);
  });
});

describe('an episode that two attempts played in parallel', () => {
  it('is no violation: the later attempt records that the episode was sampled twice', async () => {
    const store = storeWith({
      create: async (key, bytes) => {
        if (key === keys[0]) await collect(harness.secondNode(), 2);
        return harness.store.create(key, bytes);
      },
    });
    await collect({ ...harness.node, store });
    const records: AttemptRecord[] = [];
    for await (const { key } of harness.store.list(attemptsFolder(run, step)))
      records.push(await requireRecord(harness.store, key, 'attempt'));
    expect(records.flatMap(({ discarded }) => discarded ?? [])).toContain(keys[0]);
    expect((await auditRun(harness.store, run)).violations.filter(({ rule }) => rule === 'R9')).toEqual([]);
  });
});

describe('episodes of a plan that was replaced', () => {
  it('are not adopted for the new plan: the error names one of them and the way to continue (R8)', async () => {
    await collect(harness.node);
    await tamper(harness.store, planKey(run, step), (bytes) =>
      bytes.toString().replace('"max_grad_norm":1', '"max_grad_norm":2'),
    );
    const before = planned.plan;
    planned = {
      ...planned,
      plan: recordDigest(await requireRecord(harness.store, planKey(run, step), 'plan')),
    };
    const { deps, calls } = counting(harness.node);
    const collecting = collect(deps, 2);
    // The episodes are read in parallel, so the error may name any of them.
    const refused = (await collecting.catch((error: unknown) => error)) as UnreadableRecord;
    expect(refused.name).toBe('UnreadableRecord');
    expect(keys).toContain(refused.key);
    expect(refused.message).toContain(`for plan ${before}, not for ${planned.plan}`);
    expect(refused.message).toContain(`longhaul quarantine ${refused.key}`);
    expect(calls.generate).toBe(0);
  });
});

describe('progress', () => {
  it('is reported after each finished episode', async () => {
    const progress: unknown[] = [];
    await collect(harness.node, 1, progress);
    expect(progress).toEqual([1, 2, 3, 4].map((finished) => ({ finished, of: 4 })));
  });

  it('is reported during the wait for an environment that is down', async () => {
    let down = true;
    const deps: NodeDeps = {
      ...harness.node,
      backendFor: (spec, callTimeoutMs) => {
        const backend = harness.node.backendFor(spec, callTimeoutMs);
        return {
          ...backend,
          open: (...args) =>
            down
              ? Promise.reject(new EnvironmentError('unavailable', 'connect', 'nobody listens'))
              : backend.open(...args),
          healthy: () => Promise.resolve(!down),
        };
      },
    };
    const progress: unknown[] = [];
    const collecting = collect(deps, 1, progress);
    const waits = { waiting: 'tracker', waiting_reason: 'nobody listens' };
    await vi.waitFor(() => expect(progress).toContainEqual(expect.objectContaining(waits)), {
      timeout: 120_000,
    });
    down = false;
    expect(await collecting).toMatchObject({ graded: 4 });
  });
});
