// A worker freezes at each of its accesses to the store, while another worker plays and commits the step, and a collection folds its
// episodes. When the first worker continues, the records are no longer where it looks for them, and it must not sample anything again (R9,
// R23).
import { cpSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, expect, it } from 'vitest';
import { auditRun } from '../../../../src/activities/reports/audit-run.js';
import { collectRollouts } from '../../../../src/activities/step/collect-rollouts.js';
import type { PlannedStep } from '../../../../src/activities/contracts.js';
import { createNodeActivities } from '../../../../src/activities/node-activities.js';
import type { NodeDeps } from '../../../../src/activities/node-deps.js';
import { collect as collectGarbage } from '../../../../src/store/collection/collection.js';
import { episodeKey, episodesFolder, foldedEpisodesKey } from '../../../../src/store/record-keys.js';
import type { ObjectStore } from '../../../../src/store/objects/object-store.js';
import { adoptOrCreate } from '../../../../src/store/records/records.js';
import { readFolded } from '../../../../src/store/runs/folded-episodes.js';
import { activityId, counting, lastSftStep, run } from '../../fixture.js';
import { harness, useSharedHarness } from '../../own-harness.js';

const step = lastSftStep + 1;

let planned: PlannedStep;
let sleeper: ReturnType<typeof counting>;
let other: NodeDeps;
useSharedHarness();
beforeAll(async () => {
  await harness.advance(lastSftStep);
  planned = await harness.plan(step);
  cpSync(join(harness.folder, 'store'), join(harness.folder, 'planned'), { recursive: true });
  sleeper = counting(harness.node);
  other = harness.secondNode();
});

/** Resets the store to the time when the step was planned. */
function begunAnew(): void {
  const store = join(harness.folder, 'store');
  rmSync(store, { recursive: true });
  cpSync(join(harness.folder, 'planned'), store, { recursive: true, preserveTimestamps: true });
}

const play = (deps: NodeDeps, attempt: number) =>
  harness.attempt(
    activityId(step, 'collect'),
    () => collectRollouts(deps, harness.rollouts(planned)),
    attempt,
  );

async function commitElsewhere(): Promise<unknown> {
  const figures = await play(other, 2);
  const { updatePolicy } = createNodeActivities(other);
  await harness.attempt(activityId(step, 'update'), () => updatePolicy(harness.reference(planned)));
  await foldStep();
  return figures;
}

async function foldStep(): Promise<void> {
  const done = await collectGarbage(harness.store, run, {
    retention: { keep_last: 1e6, keep_every: 0, keep_best: 0 },
    graceMs: 0,
    by: 'test',
    wait: () => Promise.resolve(),
  });
  expect(done).toMatchObject({ episodes: [step], left: [] });
}

/** A store that runs `meanwhile` before the call that `isIt` selects. Other calls wait for it too. */
function frozenWhere(isIt: (verb: string, key: string) => boolean, meanwhile: () => Promise<unknown>) {
  let frozen: Promise<unknown> | null = null;
  return new Proxy(harness.store, {
    get(store, name: keyof ObjectStore) {
      const member: unknown = store[name];
      if (typeof member !== 'function') return member;
      return (...args: unknown[]): unknown => {
        const call = (): unknown => (member as (...args: unknown[]) => unknown).apply(store, args);
        // `list` returns a generator, and the tested code does not use it here.
        if (name === 'list') return call();
        if (!frozen && isIt(name, String(args[0]))) frozen = meanwhile();
        return frozen ? frozen.then(call) : call();
      };
    },
  });
}

it('a worker samples nothing again, wherever it was frozen before its first token', async () => {
  const frozenAt: string[] = [];
  for (let look = 1; ; look++) {
    begunAnew();
    sleeper.calls.generate = 0;
    let [calls, answer] = [0, null as unknown];
    // From here on, episodes run in parallel; only freezing the whole process stops all of them (`test/e2e`).
    let areApart = false;
    const store = frozenWhere(
      (verb, key) => {
        if (areApart) return false;
        areApart = verb === 'head' && key.startsWith(episodesFolder(run, step));
        if (++calls !== look) return false;
        frozenAt.push(`${verb} ${key}`);
        return true;
      },
      async () => void (answer = await commitElsewhere()),
    );
    const { deps } = sleeper;
    const woken = await play({ ...deps, store }, 1);
    if (answer === null) break;
    const at = `frozen before ${frozenAt.at(-1)}`;
    const { graded, mean_reward } = answer as { graded: number; mean_reward: number };
    expect(woken, at).toMatchObject({ graded, mean_reward, unknown: 0 });
    expect(sleeper.calls.generate, at).toBe(0);
    const { violations } = await auditRun(harness.store, run);
    expect(violations, at).toEqual([]);
  }
  // The worker reads the update, lists the folder three times, and checks each episode before the episode begins.
  expect(frozenAt.filter((at) => at === `listFolder ${episodesFolder(run, step)}`)).toHaveLength(3);
  expect(frozenAt).toContain(`head ${episodeKey(run, step, 0, 0)}`);
});

it('a worker writes no second record beside the file of folded episodes', async () => {
  begunAnew();
  const key = episodeKey(run, step, 1, 1);
  const store = frozenWhere((verb, at) => verb === 'create' && at === key, commitElsewhere);
  expect(await play({ ...sleeper.deps, store }, 1)).toMatchObject({ graded: 4 });
  expect(await harness.store.listFolder(episodesFolder(run, step))).toEqual([]);
  expect(await harness.store.head(foldedEpisodesKey(run, step))).not.toBeNull();
  expect((await auditRun(harness.store, run)).violations).toEqual([]);
});

it('an episode that a worker wrote beside the folded file before it died is no violation, and the next collection removes it', async () => {
  begunAnew();
  await commitElsewhere();
  const key = episodeKey(run, step, 0, 1);
  const folded = await readFolded(harness.store, { run, step });
  const first = folded?.get(key)?.record;
  if (!first) throw new Error(`${key} was not folded`);
  await adoptOrCreate(harness.store, key, 'episode', {
    ...first,
    observed: { ...first.observed, attempt: 1, incarnation: 'another' },
  });
  expect((await auditRun(harness.store, run)).violations).toEqual([]);
  await foldStep();
  expect(await harness.store.head(key)).toBeNull();
});
