// The audit of doctored stores: a real run's records, with one thing broken at a time (doctorings/). In a long run nobody would notice such
// a fault without the audit.
import { cpSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Outcome } from '../../../src/spec/records/episode.js';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import { recordDigest } from '../../../src/store/records/canonical.js';
import type { Violation } from '../../../src/store/audit/chain-audit.js';
import * as layout from '../../../src/store/record-keys.js';
import type { ObjectInfo, ObjectStore } from '../../../src/store/objects/object-store.js';
import { openStore } from '../../../src/store/open-store.js';
import { requireRecord } from '../../../src/store/records/records.js';
import { readState, readUpdate } from '../../../src/store/runs/run-records.js';
import {
  audited,
  Doctored,
  episode,
  forgetRun,
  home,
  learned,
  original,
  recordRun,
  run,
} from './doctored-run.js';
import { batches } from './doctorings/batches.js';
import { checkpoints } from './doctorings/checkpoints.js';
import { episodes } from './doctorings/episodes.js';
import { evaluations } from './doctorings/evaluations.js';
import { forgeries, unclaimed } from './doctorings/forgeries.js';
import { plans } from './doctorings/plans.js';
import { sequences } from './doctorings/sequences.js';
import { updates } from './doctorings/updates.js';
import { evaluated, passed, unknown } from '../evaluated.js';
import { overlaid } from '../overlaid-store.js';

beforeAll(recordRun, 120_000);
afterAll(forgetRun);

test('an unchanged run has no violations, and the audit counts its records correctly', async () => {
  const chain = await auditRun(await openStore(`dir:${original}`), run);
  expect(chain.violations).toEqual([]);
  expect(chain).toMatchObject({
    steps: audited.last + 1,
    updatesApplied: audited.last,
    episodes: 24,
    unknown: 0,
  });
  expect(chain.finalState).toBe(audited.evaluation.state);
  expect(chain.evaluations).toBeGreaterThanOrEqual(2);
  expect(chain.checkpoints).toBeGreaterThanOrEqual(1);
});

test.each<{ what: string; outcomes: Outcome[] }>([
  { what: 'an unknown outcome', outcomes: [passed, unknown] },
  { what: 'no graded outcome', outcomes: [unknown, unknown] },
  {
    what: 'rewards other than 0 and 1',
    outcomes: [
      { status: 'graded', value: 1.5 },
      { status: 'graded', value: -20 },
    ],
  },
  { what: 'a partial reward', outcomes: [passed, { status: 'graded', value: 0.5 }] },
])('an evaluation that counts $what correctly is no violation', async ({ outcomes }) => {
  const store = await Doctored.copy();
  await evaluated(store, outcomes);
  expect(await store.violations()).toEqual([]);
});

const doctorings = [
  ...updates,
  ...plans,
  ...episodes,
  ...batches,
  ...sequences,
  ...evaluations,
  ...checkpoints,
];

describe('the audit finds the fault of a doctored store', () => {
  test.each([...doctorings, ...forgeries])('$what: $rule', async ({ rule, at, names = '', doctor }) => {
    const store = await Doctored.copy();
    await doctor(store);
    const violations = await store.violations();
    expect(violations).toContainEqual(
      expect.objectContaining({
        rule,
        key: expect.stringContaining(at()) as string,
        problem: expect.stringContaining(names) as string,
      }),
    );
  });
});

describe('a forgery that no record disproves', () => {
  test.each(unclaimed)('$what: the audit lists it under notClaimed', async ({ says, doctor }) => {
    const store = await Doctored.copy();
    await doctor(store);
    const chain = await auditRun(await openStore(`dir:${store.path}`), run);
    expect(chain.violations).toEqual([]);
    expect(chain.notClaimed.join('\n')).toContain(says);
  });
});

describe('a store that gives times in whole seconds', () => {
  const inSeconds = (info: ObjectInfo): ObjectInfo => ({
    ...info,
    modified: new Date(Math.floor(info.modified.getTime() / 1000) * 1000),
  });
  /** The store, with times in whole seconds in `head` and, if `rounded.list`, in `list`. */
  const telling = (store: ObjectStore, rounded: { list: boolean }): ObjectStore =>
    overlaid(store, {
      async head(key) {
        const info = await store.head(key);
        return info && inSeconds(info);
      },
      async *list(prefix) {
        for await (const info of store.list(prefix)) yield rounded.list ? inSeconds(info) : info;
      },
    });

  test.each([{ list: true }, { list: false }])(
    'does not make the audit report a start as late (whole seconds also in listings: $list)',
    async (rounded) => {
      const { store } = await Doctored.copy();
      expect((await auditRun(telling(store, rounded), run)).violations).toEqual([]);
    },
  );

  test('does not hide a start that came a second late', async () => {
    const copy = await Doctored.copy();
    const attempts = layout.attemptsFolder(run, learned);
    copy.touch(attempts);
    const { violations } = await auditRun(telling(copy.store, { list: true }), run);
    expect(violations).toContainEqual(expect.objectContaining({ rule: 'R9', key: episode(learned) }));
  });
});

describe('an evaluation that another run has started', () => {
  test.each([
    { where: 'after the same step', later: 0 },
    { where: 'after a later step, because one of its steps applied nothing', later: 1 },
  ])('counts as announced if that run announced it $where', async ({ later }) => {
    const store = await Doctored.copy();
    const of = (one: string, step: number): string => `${layout.attemptsFolder(one, step)}evaluate-final`;
    store.move(of(run, audited.last), of('other', audited.last + later));
    expect(await store.violations()).toEqual([]);
  });
});

describe('a run that continues during its audit', () => {
  /** Audits the run without `folders`. The run writes them again right before or after the audit lists `prefix`. */
  async function auditedMeanwhile(folders: string[], when: 'before' | 'after', prefix: string) {
    const store = await Doctored.copy();
    for (const folder of folders) store.remove(folder);
    let [awaited, goneOn] = [true, false];
    const goOn = (moment: 'before' | 'after', listed: string): void => {
      if (!awaited || moment !== when || listed !== prefix) return;
      for (const folder of folders)
        cpSync(join(original, folder), join(store.path, folder), {
          recursive: true,
          preserveTimestamps: true,
        });
      [awaited, goneOn] = [false, true];
    };
    const listFolder = async (listed: string): Promise<string[]> => {
      goOn('before', listed);
      const names = await store.store.listFolder(listed);
      goOn('after', listed);
      return names;
    };
    const audit = await auditRun(overlaid(store.store, { listFolder }), run);
    expect(goneOn).toBe(true);
    return audit;
  }

  test('is audited up to the step that was the newest when the audit began', async () => {
    const newer = [layout.stepFolder(run, audited.last), layout.checkpointFolder(home, audited.last)];
    const audit = await auditedMeanwhile(newer, 'after', layout.stepsFolder(run));
    expect(audit.violations).toEqual([]);
    expect(audit.steps).toBe(audited.last);
  });

  test('may have plans of an owner that claimed it after the audit began', async () => {
    const { violations } = await auditedMeanwhile(
      [layout.ownersFolder(run)],
      'before',
      layout.stepsFolder(run),
    );
    expect(violations).toEqual([]);
  });
});

describe('a fork, audited with the steps of its parent,', () => {
  async function forked(state: (store: Doctored) => Promise<string>): Promise<Violation[]> {
    const store = await Doctored.copy();
    const parent = await requireRecord(store.store, layout.runKey(run), 'run');
    const lineage = { run, step: 2, state: await state(store) };
    await store.put(layout.runKey('fork'), 'run', { ...parent, run: 'fork', name: 'fork', lineage });
    await store.put('names/fork/1.json', 'name', { schema: 'longhaul.name/1', n: 1, run: 'fork' });
    return store.violations('fork');
  }

  test('has no violations if it starts from the parent’s state after that step', async () => {
    expect(await forked((store) => readState(store.store, run, 2))).toEqual([]);
  });

  test('has a violation if it names another state', async () => {
    expect(await forked((store) => readState(store.store, run, 1))).toContainEqual(
      expect.objectContaining({ rule: 'R5', key: layout.runKey('fork') }),
    );
  });

  test('has a violation if it has its own copy of a step that belongs to its parent', async () => {
    const own = layout.planKey('fork', 2);
    const violations = await forked(async (store) => {
      store.write(own, store.bytes(layout.planKey(run, 2)));
      return readState(store.store, run, 2);
    });
    expect(violations).toContainEqual(
      expect.objectContaining({
        rule: 'R5',
        problem: expect.stringContaining('belong to audited') as string,
      }),
    );
  });
});

test('a quarantined record is no violation: its replacement is audited instead', async () => {
  const store = await Doctored.copy();
  const key = episode(2);
  const whole = store.bytes(key);
  store.write(key, whole.subarray(0, 60));
  store.write(`${key}.r1`, whole);
  await store.put(layout.sequenceKey(layout.controlFolder(run), 1), 'control', {
    schema: 'longhaul.control/3',
    n: 1,
    update_id: 'aside',
    change: { kind: 'quarantine', key },
    observed: { at: new Date().toISOString() },
  });
  const violations = await store.violations();
  // The replacement's time in the store is now, and its start was announced long before: that is no violation.
  expect(violations).toEqual([]);
});

test('the plan’s digest in an update is the plan record’s digest', async () => {
  const store = await openStore(`dir:${original}`);
  const plan = await requireRecord(store, layout.planKey(run, 2), 'plan');
  expect(recordDigest(plan)).toBe((await readUpdate(store, run, 2)).identity.plan);
});
