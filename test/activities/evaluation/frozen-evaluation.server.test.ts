// A worker freezes at each of its accesses to the store, while another worker plays the same evaluation and a collection folds it. When the
// first worker continues, the records are no longer where it looks for them, and it must not sample anything again (R9, R23).
import { cpSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, expect, it } from 'vitest';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import { evaluateState } from '../../../src/activities/evaluation/evaluate-state.js';
import type { NodeDeps } from '../../../src/activities/node-deps.js';
import { collect } from '../../../src/store/collection/collection.js';
import { findEvaluations } from '../../../src/store/collection/evaluated-steps.js';
import { type OpenedStore, withFoldedEvaluations } from '../../../src/store/runs/episodes.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { evaluationEpisodesFolder } from '../../../src/store/record-keys.js';
import { openStore } from '../../../src/store/open-store.js';
import { adoptOrCreate, requireRecord } from '../../../src/store/records/records.js';
import { activityId, counting, lastSftStep, run } from '../fixture.js';
import { harness, useSharedHarness } from '../own-harness.js';

const step = lastSftStep;
let sleeper: ReturnType<typeof counting>;
let other: NodeDeps;
useSharedHarness();
beforeAll(async () => {
  await harness.advance(step);
  cpSync(join(harness.folder, 'store'), join(harness.folder, 'planned'), { recursive: true });
  sleeper = counting(harness.node);
  other = harness.secondNode();
});

/** Resets the store to the time before the evaluation; returns it as a new process sees it. */
async function begunAnew(): Promise<OpenedStore> {
  const store = join(harness.folder, 'store');
  rmSync(store, { recursive: true });
  cpSync(join(harness.folder, 'planned'), store, { recursive: true, preserveTimestamps: true });
  return openStore(`dir:${store}`);
}

const play = (deps: NodeDeps, attempt: number) =>
  harness.attempt(
    activityId(step, 'evaluate-interval'),
    () => evaluateState(deps, { run, owner: 1, step, suite: 'interval' }),
    attempt,
  );

async function playedElsewhere(store: OpenedStore): Promise<unknown> {
  const answer = await play({ ...other, store }, 2);
  await foldEvaluation(store);
  return answer;
}

async function foldEvaluation(store: OpenedStore): Promise<void> {
  const options = {
    retention: { keep_last: 1e6, keep_every: 0, keep_best: 0 },
    graceMs: 0,
    by: 'test',
    wait: () => Promise.resolve(),
  };
  const done = await collect(store, run, options);
  expect(done).toMatchObject({ evaluations: [{ step }], left: [] });
}

/** Folder with the episodes of the store's only evaluation. */
async function episodesFolderIn(store: OpenedStore): Promise<string> {
  const [result] = await findEvaluations(store, run);
  if (!result) throw new Error('nothing was evaluated');
  return evaluationEpisodesFolder(result.state, result.suite);
}

/** Names of the episodes that are stored beside the folded file. */
async function singlesOf(store: OpenedStore): Promise<string[]> {
  return store.unfolded.listFolder(await episodesFolderIn(store));
}

/** A store that runs `meanwhile` before the call that `isIt` selects, such as `head KEY`. Other calls wait for it too. */
function frozenWhere(
  store: OpenedStore,
  isIt: (call: string) => boolean,
  meanwhile: (call: string) => Promise<unknown>,
): OpenedStore {
  let frozen: Promise<unknown> | null = null;
  return withFoldedEvaluations(
    new Proxy(store.unfolded, {
      get(target, name: keyof ObjectStore) {
        const member: unknown = target[name];
        if (typeof member !== 'function') return member;
        return (...args: unknown[]): unknown => {
          const call = (): unknown => (member as (...args: unknown[]) => unknown).apply(target, args);
          if (name === 'list') return call();
          const text = `${name} ${String(args[0])}`;
          if (!frozen && isIt(text)) frozen = meanwhile(text);
          return frozen ? frozen.then(call) : call();
        };
      },
    }),
  );
}

/**
 * Selects call number `look`, but no call after the first check of an episode right before sampling: from that check on, episodes run
 * independently, so one episode may sample while another is frozen.
 */
function callNumber(look: number): (call: string) => boolean {
  let calls = 0;
  let areApart = false;
  return (call) => {
    calls += 1;
    const isIt = calls === look && !areApart;
    areApart ||= /^head evals\/.*\/episodes\//.test(call);
    return isIt;
  };
}

it('a worker that was frozen at any of its store accesses samples no episode again', async () => {
  const again: string[] = [];
  let looks = 0;
  for (let look = 1; ; look++) {
    const store = await begunAnew();
    let answer: unknown = null;
    let at = '';
    sleeper.calls.generate = 0;
    const frozen = frozenWhere(store, callNumber(look), async (call) => {
      at = call;
      answer = await playedElsewhere(store);
    });
    const woken = await play({ ...sleeper.deps, store: frozen }, 1);
    if (answer === null) break;
    looks += 1;
    if (sleeper.calls.generate > 0) again.push(at);
    expect(woken).toEqual(answer);
    expect((await auditRun(store, run)).violations).toEqual([]);
  }
  expect(again).toEqual([]);
  expect(looks).toBeGreaterThan(10);
});

it('a worker that was frozen before it wrote an episode leaves no episode beside the folded file', async () => {
  const store = await begunAnew();
  let answer: unknown = null;
  const frozen = frozenWhere(
    store,
    (call) => /^create evals\/.*\/episodes\//.test(call),
    async () => void (answer = await playedElsewhere(store)),
  );
  expect(await play({ ...sleeper.deps, store: frozen }, 1)).toEqual(answer);
  expect(await singlesOf(store)).toEqual([]);
  expect((await auditRun(store, run)).violations).toEqual([]);
});

it('an episode beside the folded file, written by a worker that then died, is not read, and the next collection removes it', async () => {
  const store = await begunAnew();
  await playedElsewhere(store);
  const folder = await episodesFolderIn(store);
  const times = new Map<string, number>();
  for await (const { key, modified } of store.list(folder)) times.set(key, modified.getTime());
  const [name] = await store.listFolder(folder);
  const key = `${folder}${name}`;
  const first = await requireRecord(store, key, 'episode');
  const late = { ...first, observed: { ...first.observed, attempt: 7, incarnation: 'another' } };
  await adoptOrCreate(store.unfolded, key, 'episode', late);
  expect(await singlesOf(store)).toEqual([name]);

  const reader = await openStore(store.address);
  expect(await requireRecord(reader, key, 'episode')).toEqual(first);
  expect((await reader.head(key))?.modified.getTime()).toBe(times.get(key));
  for await (const info of reader.list(folder)) expect(info.modified.getTime()).toBe(times.get(info.key));
  expect((await auditRun(reader, run)).violations).toEqual([]);
  await foldEvaluation(reader);
  expect(await singlesOf(reader)).toEqual([]);
});
