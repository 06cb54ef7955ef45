// Reads a run from its records. A fork's steps up to `lineage.step` are stored under its parent (R5), so every reader of steps uses this
// file.
import type { BaseRecord, UpdateRecord } from '../../spec/records/update.js';
import type { Digest } from '../../spec/records/parts.js';
import type { PlanRecord } from '../../spec/records/plan.js';
import type { RunRecord } from '../../spec/records/run-records.js';
import type { Numerics } from '../../spec/records/numerics.js';
import { lastWarmStep } from '../../spec/schedule.js';
import { inParallel } from '../../base/in-parallel.js';
import { recordDigest } from '../records/canonical.js';
import {
  namesFolder,
  parseStepFolder,
  planKey,
  runIdOf,
  runKey,
  stepsFolder,
  updateKey,
} from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';
import { appendSequence, readRecord, requireRecord } from '../records/records.js';
import { UnreadableRecord } from '../record-errors.js';

/** Readers follow at most this many forks, so that a cycle cannot hang them. */
const maxLineage = 1000;

/** Each run record is read once per store: run records never change, and every read of a step needs the lineage. */
const runsRead = new WeakMap<ObjectStore, Map<string, RunRecord>>();

/** Throws `UnreadableRecord` if the run does not exist. */
export async function readRun(store: ObjectStore, run: string): Promise<RunRecord> {
  const record = await readRunIfAny(store, run);
  if (!record) throw new UnreadableRecord(runKey(run), `there is no run "${run}" in ${store.address}`);
  return record;
}

export async function readRunIfAny(store: ObjectStore, run: string): Promise<RunRecord | null> {
  const known = runsRead.get(store)?.get(run);
  if (known) return known;
  const key = runKey(run);
  const record = await readRecord(store, key, 'run');
  if (!record) return null;
  if (record.run !== run) throw new UnreadableRecord(key, `it says run ${record.run}`);
  const runs = runsRead.get(store) ?? new Map<string, RunRecord>();
  runsRead.set(store, runs.set(run, record));
  return record;
}

/** Ids of all runs, in order. */
export async function listRuns(store: ObjectStore): Promise<string[]> {
  return (await store.listFolder('runs/'))
    .filter((name) => name.endsWith('/'))
    .map((name) => name.slice(0, -1));
}

/** A part of a run's steps: the steps s with after < s ≤ upTo are in the folder of `run`, the run itself or an ancestor (R5). */
interface Timeline {
  run: string;
  after: number;
  upTo: number;
}

/** All parts of a run's steps: the run's own part first, that of its oldest ancestor last. */
export async function* timelinesOf(store: ObjectStore, run: string): AsyncGenerator<Timeline> {
  let current = run;
  let upTo = Infinity;
  for (let depth = 0; depth < maxLineage; depth++) {
    const lineage = (await readRunIfAny(store, current))?.lineage;
    yield { run: current, after: lineage?.step ?? -1, upTo };
    if (!lineage) return;
    [current, upTo] = [lineage.run, Math.min(upTo, lineage.step)];
  }
  throw new UnreadableRecord(
    runKey(run),
    `its lineage is longer than ${maxLineage} runs or goes in a circle`,
  );
}

/** The run whose folder holds `step`: this run or an ancestor (R5). */
export async function timelineOf(store: ObjectStore, run: string, step: number): Promise<string> {
  let found = run;
  for await (const timeline of timelinesOf(store, run)) {
    found = timeline.run;
    if (step > timeline.after) break;
  }
  return found;
}

/** Last committed step; −1 before the base record. Reads only the folder's names and the newest records. */
export async function lastCommittedStep(store: ObjectStore, run: string): Promise<number> {
  const record = await readRunIfAny(store, run);
  const steps = (await store.listFolder(stepsFolder(run))).flatMap((name) => parseStepFolder(name) ?? []);
  for (const step of steps.sort((a, b) => b - a)) {
    if (!(await store.head(updateKey(run, step)))) continue;
    if (step > 0) await checkLink(store, run, step);
    return step;
  }
  return record?.lineage?.step ?? -1;
}

/** The record `steps/{step}/update.json`, step ≥ 1; null if the step is not committed. */
export async function readUpdateIfAny(
  store: ObjectStore,
  run: string,
  step: number,
): Promise<UpdateRecord | null> {
  const timeline = await timelineOf(store, run, step);
  const key = updateKey(timeline, step);
  const record = await readRecord(store, key, 'update');
  if (record) checkPlace(key, record.identity, timeline, step);
  return record;
}

/** Throws `UnreadableRecord` if the step is not committed. */
export async function readUpdate(store: ObjectStore, run: string, step: number): Promise<UpdateRecord> {
  const record = await readUpdateIfAny(store, run, step);
  if (!record) throw new UnreadableRecord(updateKey(run, step), `step ${step} of ${run} is not committed`);
  return record;
}

/** The base model's record: step 0 (R5). */
export async function readBase(store: ObjectStore, run: string): Promise<BaseRecord> {
  const record = await readBaseIfAny(store, run);
  return record ?? requireRecord(store, updateKey(await timelineOf(store, run, 0), 0), 'base');
}

export async function readBaseIfAny(store: ObjectStore, run: string): Promise<BaseRecord | null> {
  const timeline = await timelineOf(store, run, 0);
  const key = updateKey(timeline, 0);
  const record = await readRecord(store, key, 'base');
  if (record) checkPlace(key, record.identity, timeline, 0);
  return record;
}

/** The updates of steps `first..last`, both included, in order. */
export function readUpdates(
  store: ObjectStore,
  run: string,
  first: number,
  last: number,
): Promise<UpdateRecord[]> {
  const steps = Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => first + index);
  return inParallel(steps, (step) => readUpdate(store, run, step));
}

/** The record of a committed step, step ≥ 0. Its identity names the run whose folder holds it. */
export function readCommitted(
  store: ObjectStore,
  run: string,
  step: number,
): Promise<BaseRecord | UpdateRecord> {
  return step === 0 ? readBase(store, run) : readUpdate(store, run, step);
}

/** Digest of the state after `step`, step ≥ 0. */
export async function readState(store: ObjectStore, run: string, step: number): Promise<Digest> {
  return (await readCommitted(store, run, step)).identity.state;
}

/** Reference policy of a run's KL terms: the model after `step` of `run`, whose folder holds the step, and the digest of its weights. */
export interface Reference {
  run: string;
  step: number;
  weights: Digest;
}

/**
 * The policy that GRPO starts from: the policy after the warm start, or else the base model. Throws `UnreadableRecord`, also before that step
 * is committed.
 */
export async function referenceOf(store: ObjectStore, run: string): Promise<Reference> {
  const step = lastWarmStep((await readRun(store, run)).spec);
  const { identity } = await readCommitted(store, run, step);
  const { weights } = identity;
  if (weights !== undefined) return { run: identity.run, step, weights };
  throw new UnreadableRecord(updateKey(identity.run, step), 'it names no reference weights for a KL term');
}

/** Numerics of the last rebase of the run or its ancestors; null if there was none (R18). */
export async function rebasedTo(store: ObjectStore, run: string): Promise<Numerics | null> {
  for await (const timeline of timelinesOf(store, run)) {
    const rebase = (await readRunIfAny(store, timeline.run))?.lineage?.rebase;
    if (rebase) return rebase.numerics;
  }
  return null;
}

/** Numerics of the run's next step (R18). Throws `UnreadableRecord` if it has no base. */
export async function readNumerics(store: ObjectStore, run: string): Promise<Numerics> {
  return (await rebasedTo(store, run)) ?? (await readBase(store, run)).identity.numerics;
}

/** Where a plan is: `run`: the run whose folder holds the step; `plan`: its digest in another record. An update's identity is one. */
interface PlanPlace {
  run: string;
  step: number;
  plan?: Digest;
}

/** Throws `UnreadableRecord`, also if the plan does not have the recorded digest. */
export async function readPlan(
  store: ObjectStore,
  { run, step, plan: recorded }: PlanPlace,
): Promise<PlanRecord> {
  const key = planKey(run, step);
  const record = await requireRecord(store, key, 'plan');
  checkPlace(key, record, run, step);
  const digest = recordDigest(record);
  if (recorded === undefined || digest === recorded) return record;
  throw new UnreadableRecord(
    key,
    `it was changed: its digest is ${digest}, but ${recorded} was recorded for this step`,
  );
}

/** Run id of a name's newest timeline; a new name gets its first timeline. Two callers at the same time get the same run id. */
export async function claimName(store: ObjectStore, name: string): Promise<string> {
  const record = await appendSequence(
    store,
    namesFolder(name),
    'name',
    (n, existing) => existing.at(-1) ?? { schema: 'longhaul.name/1', n, run: runIdOf(name, n) },
  );
  return record.run;
}

async function checkLink(store: ObjectStore, run: string, step: number): Promise<void> {
  const [update, previous] = await Promise.all([
    readUpdate(store, run, step),
    readState(store, run, step - 1),
  ]);
  const { previous_state, state, applied } = update.identity;
  const key = updateKey(update.identity.run, step);
  if (previous_state !== previous) {
    throw new UnreadableRecord(
      key,
      `it continues from state ${previous_state}, but step ${step - 1} has state ${previous}`,
    );
  }
  if (applied !== true && state !== previous_state) {
    throw new UnreadableRecord(key, 'it was not applied, but its state differs from the state before');
  }
}

function checkPlace(key: string, found: { run: string; step: number }, run: string, step: number): void {
  if (found.run !== run || found.step !== step) {
    throw new UnreadableRecord(key, `it says step ${found.step} of ${found.run}`);
  }
}
