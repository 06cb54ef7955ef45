// The audit of doctored stores: a real run's records, with one thing broken at a time. What it does not catch here, nobody
// would notice in a run of days.
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { mkdirSync } from 'node:fs';
import { Client, Connection } from '@temporalio/client';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { EpisodeRecord, Outcome } from '../../src/spec/records.js';
import { auditRun } from '../../src/activities/audit-run.js';
import { summarise } from '../../src/activities/evaluate-state.js';
import { decodeBatchFile, encodeBatchFile } from '../../src/store/batch-file.js';
import { recordDigest, sha256Hex, stepIdOf } from '../../src/store/canonical.js';
import type { Violation } from '../../src/store/chain-audit.js';
import * as layout from '../../src/store/layout.js';
import type { ObjectStore } from '../../src/store/object-store.js';
import { openStore } from '../../src/store/open-store.js';
import { encodeRecord } from '../../src/store/record-codec.js';
import type { RecordKind, RecordTypes } from '../../src/store/record-schemas.js';
import { requireRecord } from '../../src/store/records.js';
import { readState, readUpdate } from '../../src/store/run-records.js';
import { startStack } from '../../src/workers/stack.js';
import { findEngine } from '../support/find-tools.js';
import { smallRun } from '../support/small-run.js';

const run = 'audited';
const home = { project: 'longhaul', model: 'tiny', run };
const folder = mkdtempSync(join(tmpdir(), 'longhaul-audit-'));
const original = join(folder, 'stack', 'store');
const built = (path: string): string => new URL(`../../dist/${path}`, import.meta.url).pathname;
let last = 0;
/** The last step: its group 0 has both outcomes. */
let evaluation: { state: string; suite: string };

beforeAll(async () => {
  const failures: Error[] = [];
  const stack = await startStack({
    folder: join(folder, 'stack'),
    engine: findEngine(),
    temporalPort: null,
    log: () => undefined,
    gaveUp: (error) => failures.push(error),
    scripts: {
      orchestrator: built('workers/orchestrator-main.js'),
      node: built('workers/node-main.js'),
      environments: built('environments/server/main.js'),
    },
  });
  const connection = Connection.lazy({ address: stack.addresses.temporal });
  try {
    const spec = (await smallRun(join(folder, 'data'))).named(run);
    const handle = await new Client({ connection }).workflow.start('trainingRun', {
      taskQueue: 'longhaul',
      workflowId: `train/${run}`,
      args: [spec],
    });
    const result = (await handle.result()) as { step: number; state: string };
    last = result.step;
    const store = await openStore(`dir:${original}`);
    const [suite] = await store.listFolder(layout.evaluationsOfState(result.state));
    evaluation = { state: result.state, suite: (suite ?? '').replace('/', '') };
    expect(failures).toEqual([]);
  } finally {
    await connection.close();
    await stack.stop();
  }
}, 120_000);
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** A copy of the run's store with ways to break it; times in the store are kept. */
class Doctored {
  readonly path = mkdtempSync(join(folder, 'copy-'));
  private constructor(public store: ObjectStore) {}

  static async copy(): Promise<Doctored> {
    const copy = new Doctored(null as unknown as ObjectStore);
    cpSync(original, copy.path, { recursive: true, preserveTimestamps: true });
    copy.store = await openStore(`dir:${copy.path}`);
    return copy;
  }

  bytes(key: string): Buffer {
    return readFileSync(join(this.path, key));
  }

  write(key: string, bytes: Uint8Array | string): void {
    mkdirSync(dirname(join(this.path, key)), { recursive: true });
    writeFileSync(join(this.path, key), bytes);
  }

  remove(key: string): void {
    rmSync(join(this.path, key), { recursive: true });
  }

  async put<Kind extends RecordKind>(key: string, kind: Kind, record: RecordTypes[Kind]): Promise<void> {
    this.write(key, await encodeRecord(kind, record));
  }

  async edit<Kind extends RecordKind>(
    key: string,
    kind: Kind,
    change: (record: RecordTypes[Kind]) => void,
  ): Promise<void> {
    const record = await requireRecord(this.store, key, kind);
    change(record);
    await this.put(key, kind, record);
  }

  async violations(of = run): Promise<Violation[]> {
    return (await auditRun(await openStore(`dir:${this.path}`), of)).violations;
  }
}

const episode = (step: number, sample = 0): string => layout.episodeKey(run, step, 0, sample);
const update = (step: number): string => layout.updateKey(run, step);
const unknown: Outcome = { status: 'unknown', reason: 'open_failed', failures: 3 };
const passed: Outcome = { status: 'graded', value: 1 };
const outcomeOf = (record: EpisodeRecord): number =>
  record.outcome.status === 'graded' ? record.outcome.value : NaN;
const evalEpisode = (): string => layout.evaluationEpisodeKey(evaluation.state, evaluation.suite, 0, 0);
const evalResult = (): string => layout.evaluationResultKey(evaluation.state, evaluation.suite);

test('a run as it was made has no violation, and its figures are those of its records', async () => {
  const chain = await auditRun(await openStore(`dir:${original}`), run);
  expect(chain.violations).toEqual([]);
  expect(chain).toMatchObject({ steps: last + 1, updatesApplied: last, episodes: 24, unknown: 0 });
  expect(chain.finalState).toBe(evaluation.state);
  expect(chain.evaluations).toBeGreaterThanOrEqual(2);
  expect(chain.checkpoints).toBeGreaterThanOrEqual(1);
});

/** The last evaluation with other outcomes, one for each of its two tasks, and what it counts of them but for its pass@1. */
async function evaluated(store: Doctored, outcomes: Outcome[], pass_at_1?: number): Promise<void> {
  const { state, suite: digest } = evaluation;
  const suite = await requireRecord(store.store, layout.evaluationSuiteKey(state, digest), 'suite');
  expect(outcomes).toHaveLength(suite.tasks.length);
  const episodes = outcomes.map(async (outcome, slot) => {
    const key = layout.evaluationEpisodeKey(state, digest, slot, 0);
    await store.edit(key, 'episode', (record) => {
      record.outcome = outcome;
    });
    return requireRecord(store.store, key, 'episode');
  });
  const counted = summarise(await Promise.all(episodes), suite, digest, state);
  await store.edit(evalResult(), 'evaluation', (result) => {
    Object.assign(result, counted, pass_at_1 === undefined ? {} : { pass_at_1 });
  });
}

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
])('an evaluation that counts $what as it should is no violation', async ({ outcomes }) => {
  const store = await Doctored.copy();
  await evaluated(store, outcomes);
  expect(await store.violations()).toEqual([]);
});

interface Doctoring {
  what: string;
  rule: Violation['rule'];
  /** Where the violation must be found. */
  at: () => string;
  /** What the violation must name besides. */
  names?: string;
  doctor: (store: Doctored) => Promise<void> | void;
}

/** Seals other content, and lets the step's update name it: every digest of the chain is right, only its bytes are not. */
async function reseal(store: Doctored, step: number, change: (batch: Batch) => void): Promise<void> {
  const key = layout.batchKey(run, step);
  const batch = decodeBatchFile(store.bytes(key), key);
  change(batch);
  const bytes = encodeBatchFile(batch.arrays, batch.identity);
  store.write(key, bytes);
  await store.edit(update(step), 'update', ({ identity }) => {
    identity.batch = sha256Hex(bytes);
    identity.step_id = stepIdOf(identity.previous_state, identity.batch, identity.plan);
  });
}
type Batch = ReturnType<typeof decodeBatchFile>;
/** One of the two supervised steps, and a GRPO step in which a group has both outcomes. */
const [supervised, learned] = [1, 2];

const doctorings: Doctoring[] = [
  {
    what: "a batch's advantages are twice what its outcomes give",
    rule: 'R10',
    at: () => layout.batchKey(run, learned),
    names: 'target_advantages[0]',
    doctor: (store) =>
      reseal(store, learned, ({ arrays }) => {
        for (const [index, value] of arrays.target_advantages.entries())
          arrays.target_advantages[index] = 2 * value;
      }),
  },
  {
    what: "a batch's old log-probs are not those of its episodes",
    rule: 'R10',
    at: () => layout.batchKey(run, learned),
    names: 'target_old_logprobs[1]',
    doctor: (store) =>
      reseal(store, learned, ({ arrays }) => {
        arrays.target_old_logprobs[1] = -20;
      }),
  },
  {
    what: "a batch's tokens are not those of its episodes",
    rule: 'R10',
    at: () => layout.batchKey(run, learned),
    names: 'tokens[3]',
    doctor: (store) =>
      reseal(store, learned, ({ arrays }) => {
        arrays.tokens[3] = (arrays.tokens[3] as number) + 1;
      }),
  },
  {
    what: "a batch's figures are not those of its episodes",
    rule: 'R10',
    at: () => layout.batchKey(run, learned),
    names: 'metrics.reward/avg_raw_reward',
    doctor: (store) =>
      reseal(store, learned, ({ identity }) => {
        identity.metrics['reward/avg_raw_reward'] = 0.9;
      }),
  },
  {
    what: 'a supervised batch learns other tokens than its demonstrations hold',
    rule: 'R10',
    at: () => layout.batchKey(run, supervised),
    names: 'target_tokens[2]',
    doctor: (store) =>
      reseal(store, supervised, ({ arrays }) => {
        arrays.target_tokens[2] = (arrays.target_tokens[2] as number) + 1;
      }),
  },
  {
    what: 'two batches changed places',
    rule: 'R10',
    at: () => layout.batchKey(run, 3),
    doctor: (store) => {
      const [a, b] = [store.bytes(layout.batchKey(run, 2)), store.bytes(layout.batchKey(run, 3))];
      store.write(layout.batchKey(run, 2), b);
      store.write(layout.batchKey(run, 3), a);
    },
  },
  {
    what: 'a batch is gone',
    rule: 'R10',
    at: () => layout.batchKey(run, 2),
    doctor: (store) => store.remove(layout.batchKey(run, 2)),
  },
  {
    what: "an episode's outcome was edited",
    rule: 'R11',
    at: () => episode(2),
    doctor: (store) =>
      store.edit(episode(2), 'episode', (record) => {
        record.outcome = { status: 'graded', value: 1 - outcomeOf(record) };
      }),
  },
  {
    what: "an episode's tokens were edited, its outcome was not",
    rule: 'R10',
    at: () => layout.batchKey(run, 2),
    doctor: (store) =>
      store.edit(episode(2), 'episode', (record) => {
        record.tokens[record.tokens.length - 1] = 5;
      }),
  },
  {
    what: 'an unknown outcome was recorded as 0',
    rule: 'R25',
    at: () => episode(2),
    doctor: async (store) => {
      await store.edit(episode(2), 'episode', (record) => {
        record.outcome = unknown;
      });
      await store.edit(update(2), 'update', ({ identity }) => {
        (identity.outcomes[0] as (number | null)[])[0] = 0;
      });
    },
  },
  {
    what: 'the targets of an unknown sample are in the batch',
    rule: 'R25',
    at: () => layout.batchKey(run, 2),
    doctor: async (store) => {
      const sample = await learningSample(store, 2);
      await store.edit(episodeAt(2, sample), 'episode', (record) => {
        record.outcome = unknown;
      });
    },
  },
  {
    what: 'an episode is gone',
    rule: 'R8',
    at: () => episode(2),
    doctor: (store) => store.remove(episode(2)),
  },
  {
    what: 'an episode more than the plan has seats',
    rule: 'R8',
    at: () => layout.episodeKey(run, 2, 7, 0),
    doctor: (store) => store.write(layout.episodeKey(run, 2, 7, 0), store.bytes(episode(2))),
  },
  {
    what: 'an episode sits on another seat',
    rule: 'R8',
    at: () => episode(2, 1),
    doctor: (store) => store.write(episode(2, 1), store.bytes(episode(2, 0))),
  },
  {
    what: 'an episode was sampled at another state',
    rule: 'R8',
    at: () => episode(3),
    doctor: async (store) => {
      const other = await readState(store.store, run, 1);
      await store.edit(episode(3), 'episode', (record) => {
        record.state = other;
      });
    },
  },
  {
    what: 'a turn was sampled by an older policy',
    rule: 'R8',
    at: () => episode(3),
    doctor: (store) =>
      store.edit(episode(3), 'episode', (record) => {
        for (const turn of record.turns) turn.policy_step -= 1;
      }),
  },
  {
    what: 'a finished episode was started again',
    rule: 'R9',
    at: () => episode(3),
    doctor: (store) =>
      store.put(`${layout.attemptFolder(run, 3, 'collect', 'late.2')}1.json`, 'attempt', {
        schema: 'longhaul.attempt/1',
        activity: 'step-000003/collect',
        attempt: 'late.2',
        n: 1,
        starts: [episode(3)],
        observed: { node: 'other', pid: 1, at: new Date().toISOString() },
      }),
  },
  {
    what: "a finished evaluation's episode was started again",
    rule: 'R9',
    at: evalEpisode,
    doctor: (store) =>
      store.put(`${layout.attemptFolder(run, last, 'evaluate', 'late.2')}1.json`, 'attempt', {
        schema: 'longhaul.attempt/1',
        activity: 'evaluate',
        attempt: 'late.2',
        n: 1,
        starts: [evalEpisode()],
        observed: { node: 'other', pid: 1, at: new Date().toISOString() },
      }),
  },
  {
    what: 'an update in the middle is gone',
    rule: 'R5',
    at: () => update(2),
    doctor: (store) => store.remove(update(2)),
  },
  {
    what: 'the base record is gone',
    rule: 'R5',
    at: () => update(0),
    doctor: (store) => store.remove(update(0)),
  },
  {
    what: 'the base is of another model',
    rule: 'R5',
    at: () => update(0),
    doctor: (store) =>
      store.edit(update(0), 'base', ({ identity }) => {
        identity.base_model = '0'.repeat(64);
      }),
  },
  {
    what: 'an update left another state than the next one found',
    rule: 'R5',
    at: () => update(3),
    doctor: (store) =>
      store.edit(update(2), 'update', ({ identity }) => {
        identity.state = '0'.repeat(64);
      }),
  },
  {
    what: 'an update that was not applied changed the state',
    rule: 'R5',
    at: () => update(2),
    doctor: (store) =>
      store.edit(update(2), 'update', ({ identity }) => {
        identity.applied = { reason: 'not_finite' };
      }),
  },
  {
    what: "a step id that does not follow from its update's parts",
    rule: 'R11',
    at: () => update(2),
    doctor: (store) =>
      store.edit(update(2), 'update', ({ identity }) => {
        identity.step_id = '0'.repeat(64);
      }),
  },
  {
    what: 'an update was applied twice',
    rule: 'R12',
    at: () => update(3),
    doctor: async (store) => {
      const first = (await readUpdate(store.store, run, 2)).identity;
      await store.edit(update(3), 'update', ({ identity }) => {
        identity.batch = first.batch;
        identity.step_id = stepIdOf(identity.previous_state, identity.batch, identity.plan);
      });
    },
  },
  {
    what: 'a plan was changed after it was carried out',
    rule: 'R7',
    at: () => layout.planKey(run, 2),
    doctor: (store) =>
      store.edit(layout.planKey(run, 2), 'plan', (plan) => {
        plan.optimizer.learning_rates = [0.5];
      }),
  },
  {
    what: 'a plan is gone',
    rule: 'R7',
    at: () => layout.planKey(run, 2),
    doctor: (store) => store.remove(layout.planKey(run, 2)),
  },
  {
    what: 'a plan of another dataset',
    rule: 'R7',
    at: () => layout.planKey(run, 2),
    doctor: (store) =>
      store.edit(layout.planKey(run, 2), 'plan', (plan) => {
        plan.digests.dataset = '0'.repeat(64);
      }),
  },
  {
    what: 'other numerics than planned',
    rule: 'R18',
    at: () => layout.planKey(run, 2),
    doctor: (store) =>
      store.edit(update(2), 'update', ({ identity }) => {
        identity.numerics.version += 1;
      }),
  },
  {
    what: 'the owner that planned is not recorded',
    rule: 'R20',
    at: () => layout.planKey(run, 2),
    doctor: (store) => store.remove(layout.ownersFolder(run)),
  },
  {
    what: 'one Update was recorded twice',
    rule: 'R21',
    at: () => layout.sequenceKey(layout.controlFolder(run), 2),
    doctor: async (store) => {
      for (const n of [1, 2]) {
        await store.put(layout.sequenceKey(layout.controlFolder(run), n), 'control', {
          schema: 'longhaul.control/1',
          n,
          update_id: 'the same',
          change: { kind: 'resume' },
          observed: { at: new Date().toISOString() },
        });
      }
    },
  },
  {
    what: 'a step was begun before the one before it was committed',
    rule: 'R5',
    at: () => layout.stepFolder(run, last + 2),
    doctor: (store) => store.write(layout.planKey(run, last + 2), store.bytes(layout.planKey(run, 2))),
  },
  {
    what: 'a record that is cut off',
    rule: 'R1',
    at: () => episode(2),
    doctor: (store) => store.write(episode(2), store.bytes(episode(2)).subarray(0, 60)),
  },
  {
    what: 'a record of a newer schema',
    rule: 'R1',
    at: () => layout.planKey(run, 2),
    doctor: (store) => {
      const text = store.bytes(layout.planKey(run, 2)).toString('utf8');
      store.write(layout.planKey(run, 2), text.replace('longhaul.plan/1', 'longhaul.plan/9'));
    },
  },
  {
    what: 'demonstrations that are not those of the run',
    rule: 'R7',
    at: () => 'demonstrations.jsonl',
    doctor: async (store) => {
      const { dataset } = await requireRecord(store.store, layout.runKey(run), 'run');
      const key = layout.datasetFileKey(dataset.name, dataset.version, 'demonstrations.jsonl');
      store.write(key, store.bytes(key).subarray(10));
    },
  },
  {
    what: 'an unknown outcome counts in an evaluation',
    rule: 'R25',
    at: evalResult,
    doctor: (store) =>
      store.edit(evalEpisode(), 'episode', (record) => {
        record.outcome = unknown;
      }),
  },
  {
    what: 'an unknown outcome of an evaluation entered its pass@1 as a failure',
    rule: 'R25',
    at: evalResult,
    names: 'pass_at_1 is 0.5, its episodes give 1',
    doctor: (store) => evaluated(store, [passed, unknown], 0.5),
  },
  {
    what: 'a partial reward entered pass@1 of an evaluation with its value',
    rule: 'R25',
    at: evalResult,
    names: 'pass_at_1 is 0.75, its episodes give 0.5',
    doctor: (store) => evaluated(store, [passed, { status: 'graded', value: 0.5 }], 0.75),
  },
  {
    what: 'an evaluation says more than its episodes do',
    rule: 'R25',
    at: evalResult,
    doctor: (store) =>
      store.edit(evalResult(), 'evaluation', (result) => {
        result.pass_at_1 = result.pass_at_1 === 1 ? 0.5 : 1;
      }),
  },
  {
    what: 'an evaluation with an episode too few',
    rule: 'R8',
    at: evalEpisode,
    doctor: (store) => store.remove(evalEpisode()),
  },
  {
    what: 'a suite other than its key says',
    rule: 'R13',
    at: () => layout.evaluationSuiteKey(evaluation.state, evaluation.suite),
    doctor: (store) =>
      store.edit(layout.evaluationSuiteKey(evaluation.state, evaluation.suite), 'suite', (suite) => {
        suite.seed += 1;
      }),
  },
  {
    what: "a checkpoint's bytes changed",
    rule: 'R31',
    at: () => layout.checkpointFolder(home, last),
    doctor: (store) => {
      const key = layout.checkpointFileKey(home, last, 'state.safetensors');
      const bytes = store.bytes(key);
      bytes[bytes.length - 5] = (bytes[bytes.length - 5] as number) ^ 1;
      store.write(key, bytes);
    },
  },
  {
    what: 'a checkpoint of a step that is not committed',
    rule: 'R31',
    at: () => layout.checkpointManifestKey(home, last + 1),
    names: 'not committed',
    doctor: async (store) => {
      const key = layout.checkpointManifestKey(home, last);
      const manifest = await requireRecord(store.store, key, 'checkpoint');
      const step = last + 1;
      await store.put(layout.checkpointManifestKey(home, step), 'checkpoint', {
        ...manifest,
        step,
      });
    },
  },
  {
    what: 'a checkpoint of another state',
    rule: 'R31',
    at: () => layout.checkpointManifestKey(home, last),
    doctor: async (store) => {
      const other = await readState(store.store, run, 1);
      await store.edit(layout.checkpointManifestKey(home, last), 'checkpoint', (manifest) => {
        manifest.state = other;
      });
    },
  },
];

describe('a doctored store is found out', () => {
  test.each(doctorings)('$what: $rule', async ({ rule, at, names = '', doctor }) => {
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

describe('a run that goes on while it is audited', () => {
  /** Removes what the run has written into `folders`; it writes that again right before or after the audit lists `prefix`. */
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
    const live = new Proxy(store.store, {
      get(target, name: keyof ObjectStore) {
        const member: unknown = name === 'listFolder' ? listFolder : target[name];
        return typeof member === 'function' ? (member.bind(target) as unknown) : member;
      },
    });
    const audit = await auditRun(live, run);
    expect(goneOn).toBe(true);
    return audit;
  }

  test('is audited up to the step that was the newest, without what came after it', async () => {
    const newer = [layout.stepFolder(run, last), layout.checkpointFolder(home, last)];
    const audit = await auditedMeanwhile(newer, 'after', layout.stepsFolder(run));
    expect(audit.violations).toEqual([]);
    expect(audit.steps).toBe(last);
  });

  test('may have plans of an owner who came after the audit began', async () => {
    const { violations } = await auditedMeanwhile(
      [layout.ownersFolder(run)],
      'before',
      layout.stepsFolder(run),
    );
    expect(violations).toEqual([]);
  });
});

describe('a fork is audited with the steps of its parent', () => {
  async function forked(state: (store: Doctored) => Promise<string>): Promise<Violation[]> {
    const store = await Doctored.copy();
    const parent = await requireRecord(store.store, layout.runKey(run), 'run');
    const lineage = { run, step: 2, state: await state(store) };
    await store.put(layout.runKey('fork'), 'run', { ...parent, run: 'fork', name: 'fork', lineage });
    await store.put('names/fork/1.json', 'name', { schema: 'longhaul.name/1', n: 1, run: 'fork' });
    return store.violations('fork');
  }

  test('and is sound where it continues from the state that the parent left', async () => {
    expect(await forked((store) => readState(store.store, run, 2))).toEqual([]);
  });

  test('and is not where it says another state', async () => {
    expect(await forked((store) => readState(store.store, run, 1))).toContainEqual(
      expect.objectContaining({ rule: 'R5', key: layout.runKey('fork') }),
    );
  });
});

test('what is set aside is no violation: its replacement stands for it', async () => {
  const store = await Doctored.copy();
  const key = episode(2);
  const whole = store.bytes(key);
  store.write(key, whole.subarray(0, 60));
  store.write(`${key}.r1`, whole);
  await store.put(layout.sequenceKey(layout.controlFolder(run), 1), 'control', {
    schema: 'longhaul.control/1',
    n: 1,
    update_id: 'aside',
    change: { kind: 'quarantine', key },
    observed: { at: new Date().toISOString() },
  });
  const violations = await store.violations();
  // Its time in the store is new, so that its start, which was announced long before, is no violation either.
  expect(violations).toEqual([]);
});

const episodeAt = (step: number, { slot, sample }: { slot: number; sample: number }): string =>
  layout.episodeKey(run, step, slot, sample);

/** A sample whose group has a signal of its own even without it, or by it. */
async function learningSample(store: Doctored, step: number): Promise<{ slot: number; sample: number }> {
  const { outcomes } = (await readUpdate(store.store, run, step)).identity;
  const slot = outcomes.findIndex((group) => new Set(group).size > 1);
  expect(slot, 'a group with a signal').toBeGreaterThanOrEqual(0);
  return { slot, sample: 0 };
}

test('digests in this file are those of the records', async () => {
  const store = await openStore(`dir:${original}`);
  const plan = await requireRecord(store, layout.planKey(run, 2), 'plan');
  expect(recordDigest(plan)).toBe((await readUpdate(store, run, 2)).identity.plan);
});
