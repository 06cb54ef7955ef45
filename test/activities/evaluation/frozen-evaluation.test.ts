// A worker stands still at each of its looks at the store, while another one plays the same evaluation and a collection folds it. It wakes
// to records that are gone from where it looks for them, and must sample nothing again (R9, R23).
import { cpSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import { evaluateState } from '../../../src/activities/evaluation/evaluate-state.js';
import type { NodeDeps } from '../../../src/activities/node-deps.js';
import type { EnvironmentServer } from '../../../src/environments/server/environment-server.js';
import { collect } from '../../../src/store/collection/collection.js';
import { unfoldedStore, withFoldedEvaluations } from '../../../src/store/collection/folded-evaluations.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { openStore } from '../../../src/store/open-store.js';
import { counting, type Harness, lastSftStep, run, startEnvironments, startHarness } from '../fixture.js';

const step = lastSftStep;
let environments: EnvironmentServer;
let harness: Harness;
let sleeper: ReturnType<typeof counting>;
let other: NodeDeps;
beforeAll(async () => {
  environments = await startEnvironments();
  harness = await startHarness(environments);
  await harness.advance(step);
  cpSync(join(harness.folder, 'store'), join(harness.folder, 'planned'), { recursive: true });
  sleeper = counting(harness.node);
  other = harness.secondNode();
});
afterAll(async () => {
  await harness.close();
  await environments.close();
});

/** The store as it was before the evaluation, as a process sees it that has read nothing of it. */
async function begunAnew(): Promise<ObjectStore> {
  const store = join(harness.folder, 'store');
  rmSync(store, { recursive: true });
  cpSync(join(harness.folder, 'planned'), store, { recursive: true, preserveTimestamps: true });
  return openStore(`dir:${store}`);
}

const play = (deps: NodeDeps, attempt: number) =>
  harness.attempt(
    `step-${String(step).padStart(6, '0')}/evaluate-interval`,
    () => evaluateState(deps, { run, owner: 1, step, suite: 'interval' }),
    attempt,
  );

async function playedElsewhere(store: ObjectStore): Promise<unknown> {
  const answer = await play({ ...other, store }, 2);
  const options = { retention: null, graceMs: 0, by: 'test', wait: () => Promise.resolve() };
  const { evaluations } = await collect(store, run, options);
  expect(evaluations).toHaveLength(1);
  return answer;
}

/**
 * Its calls wait for `meanwhile` from the one on that is the `look`th, up to the first look of an episode right before it samples: from
 * there on episodes are apart, and one whose look was answered may sample while another one's is frozen.
 */
function frozenAt(
  store: ObjectStore,
  look: number,
  meanwhile: (call: string) => Promise<unknown>,
): ObjectStore {
  let calls = 0;
  let frozen: Promise<unknown> | null = null;
  let areApart = false;
  return withFoldedEvaluations(
    new Proxy(unfoldedStore(store), {
      get(target, name: keyof ObjectStore) {
        const member: unknown = target[name];
        if (typeof member !== 'function') return member;
        return (...args: unknown[]): unknown => {
          const call = (): unknown => (member as (...args: unknown[]) => unknown).apply(target, args);
          if (name === 'list') return call();
          calls += 1;
          if (calls === look && !areApart) frozen = meanwhile(`${name} ${String(args[0])}`);
          areApart ||= name === 'head' && /^evals\/.*\/episodes\//.test(String(args[0]));
          return frozen ? frozen.then(call) : call();
        };
      },
    }),
  );
}

it('a worker that stood still at any of its looks samples no episode of an evaluation again', async () => {
  const again: string[] = [];
  let looks = 0;
  for (let look = 1; ; look++) {
    const store = await begunAnew();
    let answer: unknown = null;
    let at = '';
    sleeper.calls.generate = 0;
    const frozen = frozenAt(store, look, async (call) => {
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
