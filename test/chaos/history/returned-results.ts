// Compares the results that activities returned with the records. An activity must return the stored record, whichever attempt wrote it.
import type {
  CollectedRollouts,
  CommittedStep,
  EvaluatedState,
  OpenedRun,
  PlannedStep,
} from '../../../src/activities/contracts.js';
import type {
  ControlChange,
  ControlRecord,
  ControlState,
} from '../../../src/spec/records/control-records.js';
import { recordDigest } from '../../../src/store/records/canonical.js';
import { readStepEpisodes } from '../../../src/store/runs/episodes.js';
import {
  collectionsFolder,
  controlFolder,
  evaluationResultKey,
  ownersFolder,
  planKey,
  sequenceKey,
  updateKey,
} from '../../../src/store/record-keys.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { readRecord, readSequence } from '../../../src/store/records/records.js';
import { timelineOf } from '../../../src/store/runs/run-records.js';

/** The run's records in the store, each read only once. */
export class StoredRun {
  private readonly kept = new Map<string, Promise<unknown>>();

  constructor(
    private readonly store: ObjectStore,
    readonly run: string,
  ) {}

  plan(step: number) {
    return this.once(`plan ${step}`, async () =>
      readRecord(this.store, planKey(await this.timeline(step), step), 'plan'),
    );
  }

  update(step: number) {
    return this.once(`update ${step}`, async () =>
      readRecord(this.store, updateKey(await this.timeline(step), step), 'update'),
    );
  }

  base() {
    return this.once('base', async () =>
      readRecord(this.store, updateKey(await this.timeline(0), 0), 'base'),
    );
  }

  async state(step: number): Promise<string | undefined> {
    return (step === 0 ? await this.base() : await this.update(step))?.identity.state;
  }

  episodes(step: number) {
    return this.once(`episodes ${step}`, async () =>
      readStepEpisodes(this.store, await this.timeline(step), step),
    );
  }

  evaluation(state: string, suite: string) {
    return readRecord(this.store, evaluationResultKey(state, suite), 'evaluation');
  }

  control(): Promise<ControlRecord[]> {
    return this.once('control', () => readSequence(this.store, controlFolder(this.run), 'control'));
  }

  owner(n: number) {
    return readRecord(this.store, sequenceKey(ownersFolder(this.run), n), 'owner');
  }

  /** Steps whose checkpoints were deleted by a collection. */
  collected(): Promise<Set<number>> {
    return this.once('collected', async () => {
      const records = await readSequence(this.store, collectionsFolder(this.run), 'gc');
      return new Set(records.flatMap(({ checkpoints }) => checkpoints));
    });
  }

  async has(key: string): Promise<boolean> {
    return (await this.store.head(key)) !== null;
  }

  private timeline(step: number): Promise<string> {
    return timelineOf(this.store, this.run, step);
  }

  private once<T>(name: string, read: () => Promise<T>): Promise<T> {
    const kept = (this.kept.get(name) as Promise<T> | undefined) ?? read();
    this.kept.set(name, kept);
    return kept;
  }
}

/** Every difference between the result of a completed activity and the stored record. */
export async function differingResult(
  stored: StoredRun,
  { type, input, result }: { type: string; input: unknown; result: unknown },
): Promise<string[]> {
  const check = checks[type];
  return check ? check(stored, input as never, result as never) : [];
}

type Check = (stored: StoredRun, input: never, result: never) => Promise<string[]>;

const checks: Record<string, Check> = {
  openRun: async (
    stored,
    { workflow }: { workflow: { workflowId: string; firstExecutionRunId: string } },
    { owner, position }: OpenedRun,
  ) => {
    const record = await stored.owner(owner);
    if (!record) return [`it returned owner ${owner}, which has no record`];
    return [
      ...unequal('workflow of the owner', workflow.workflowId, record.workflowId),
      ...unequal('execution of the owner', workflow.firstExecutionRunId, record.firstExecutionRunId),
      ...(position.step < 0
        ? []
        : unequal('state of the position', position.state, await stored.state(position.step))),
    ];
  },
  commitBase: async (stored, _input, { state }: { state: string }) =>
    unequal('state', state, await stored.state(0)),
  planStep: async (stored, { step }: { step: number }, result: PlannedStep) => {
    const plan = await stored.plan(step);
    if (!plan) return ['it returned a plan that is not stored'];
    return [
      ...unequal('step', result.step, plan.step),
      ...unequal('kind', result.kind, plan.kind),
      ...unequal('plan', result.plan, recordDigest(plan)),
      ...unequal('slots', result.slots, plan.kind === 'grpo' ? plan.slots.length : 0),
    ];
  },
  collectRollouts: async (
    stored,
    { step, slots: [from, to] }: { step: number; slots: [number, number] },
    result: CollectedRollouts,
  ) => {
    const episodes = (await stored.episodes(step)).filter(({ slot }) => slot >= from && slot < to);
    const values = episodes.flatMap(({ outcome }) => (outcome.status === 'graded' ? [outcome.value] : []));
    const mean = values.length === 0 ? null : values.reduce((sum, value) => sum + value, 0) / values.length;
    return [
      ...unequal('graded', result.graded, values.length),
      ...unequal('unknown', result.unknown, episodes.length - values.length),
      ...(mean !== null && Math.abs((result.mean_reward ?? NaN) - mean) < 1e-9
        ? []
        : unequal('mean_reward', result.mean_reward, mean)),
    ];
  },
  updatePolicy: async (stored, { step, plan }: { step: number; plan: string }, result: CommittedStep) => {
    const record = await stored.update(step);
    if (!record) return ['it returned a step that is not committed'];
    const { identity, observed } = record;
    const reason = identity.applied === true ? null : identity.applied.reason;
    return [
      ...unequal('step', result.step, identity.step),
      ...unequal('kind', result.kind, identity.kind),
      ...unequal('plan of its input', plan, identity.plan),
      ...unequal('state', result.state, identity.state),
      ...unequal('applied', result.applied, identity.applied === true),
      ...unequal('reason', result.reason, reason),
      ...Object.entries(result.metrics).flatMap(([name, value]) =>
        unequal(name, value, observed.metrics[name]),
      ),
    ];
  },
  evaluateState: async (stored, { step }: { step: number }, result: EvaluatedState) => {
    const record = await stored.evaluation(result.state, result.suite);
    if (!record) return ['it returned an evaluation that is not stored'];
    return [
      ...unequal('state', result.state, await stored.state(step)),
      ...unequal('pass_at_1', result.pass_at_1, record.pass_at_1),
      ...unequal('graded', result.graded, record.graded),
      ...unequal('unknown', result.unknown, record.unknown),
    ];
  },
  uploadCheckpoint: async (stored, { step }: { step: number }, { key }: { key: string }) =>
    (await stored.has(`${key}manifest.json`)) || (await stored.collected()).has(step)
      ? []
      : [`it returned the checkpoint ${key}, which has no manifest`],
  writeReport: async (stored, _input, { key }: { key: string }) =>
    (await stored.has(key)) ? [] : [`it returned the report ${key}, which is not stored`],
  recordControl: async (
    stored,
    { updateId, change }: { updateId: string; change: ControlChange },
    { n }: ControlState,
  ) => {
    const record = (await stored.control()).find((one) => one.update_id === updateId);
    if (!record) return [`it returned, and no control record has the id ${updateId}`];
    return [
      ...unequal('change', JSON.stringify(sorted(change)), JSON.stringify(sorted(record.change))),
      ...(n >= record.n ? [] : [`it returned control ${n}, and its own record is ${record.n}`]),
    ];
  },
};

function unequal(what: string, returned: unknown, stored: unknown): string[] {
  return returned === stored
    ? []
    : [`it returned the ${what} ${String(returned)}, stored is ${String(stored)}`];
}

const sorted = (change: ControlChange): object =>
  Object.fromEntries(Object.entries(change).sort(([a], [b]) => (a < b ? -1 : 1)));
