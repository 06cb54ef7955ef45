// Recomputes logged updates on a fresh engine and compares each state with its record. The weights depend only on the records (R13), and
// anybody can check that here.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { FileEngine } from '../../engine/file-engine.js';
import type { Digest } from '../../spec/records/parts.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { lastCommittedStep, readPlan, readRun, readState, readUpdate } from '../../store/runs/run-records.js';
import type { PolicyHolder } from '../../policy/policy-holder.js';
import { nativePolicyHolder } from '../../policy/native-state-keeper.js';

export interface ReplayRange {
  /** First step, from 1, and last step, both included. */
  from: number;
  to: number;
}

interface ReplayedStep {
  step: number;
  /** False if the step applied no update, so there is nothing to compute. */
  applied: boolean;
  recorded: Digest;
  computed: Digest;
  seconds: number;
}

export interface ReplayAudit extends ReplayRange {
  run: string;
  /** In order. The list ends with the first step that differs, because later steps have no correct state to start from. */
  steps: ReplayedStep[];
  equal: boolean;
  /** Time to restore the state before `from`: to load the newest checkpoint or the base model, and to apply the updates after it. */
  restoreSeconds: number;
  /** Time of the updates alone. */
  seconds: number;
}

export class BadReplayRange extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'BadReplayRange';
  }
}

/** Reads `A..B` or `A`. Throws `BadReplayRange`. */
export function parseReplayRange(text: string): ReplayRange {
  const match = /^([1-9][0-9]*)(?:\.\.([1-9][0-9]*))?$/.exec(text);
  const [from, to] = [Number(match?.[1]), Number(match?.[2] ?? match?.[1])];
  if (match && from <= to) return { from, to };
  throw new BadReplayRange(`"${text}" is not a range of steps: write A..B with 1 ≤ A ≤ B, for example 3..5`);
}

/** Throws `BadReplayRange` if step `to` is not committed. */
export async function refuseUncommitted(store: ObjectStore, run: string, to: number): Promise<void> {
  const last = await lastCommittedStep(store, run);
  if (to <= last) return;
  throw new BadReplayRange(
    last < 1
      ? `${run} has no committed update yet: there is nothing to replay`
      : `step ${to} of ${run} is not committed: replay at most up to its last step, ${last}`,
  );
}

/** Replays steps `from` to `to`. The engine must be fresh: an engine that already holds a state would compare that state with itself. */
export async function replayUpdates(
  { store, engine, log }: { store: ObjectStore; engine: FileEngine; log: (message: string) => void },
  run: string,
  { from, to }: ReplayRange,
): Promise<ReplayAudit> {
  await readRun(store, run);
  await refuseUncommitted(store, run, to);
  const folder = await mkdtemp(join(tmpdir(), 'longhaul-replay-'));
  const holder = nativePolicyHolder({ store, engine, folder, log });
  const clock = (): number => performance.now() / 1000;
  try {
    const began = clock();
    await holder.withState(run, from - 1, 'visitor', () => Promise.resolve());
    const restoreSeconds = clock() - began;
    const steps: ReplayedStep[] = [];
    for (let step = from; step <= to && steps.every(isEqual); step++)
      steps.push(await replay(store, holder, run, step));
    const seconds = steps.reduce((sum, step) => sum + step.seconds, 0);
    return { run, from, to, steps, equal: steps.every(isEqual), restoreSeconds, seconds };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function replay(
  store: ObjectStore,
  holder: PolicyHolder,
  run: string,
  step: number,
): Promise<ReplayedStep> {
  const { identity } = await readUpdate(store, run, step);
  const recorded = identity.state;
  if (identity.applied !== true) {
    return { step, applied: false, recorded, computed: await readState(store, run, step - 1), seconds: 0 };
  }
  const plan = await readPlan(store, identity);
  const began = performance.now();
  const { state: computed } = await holder.alone(run, step - 1, identity.step_id, () =>
    holder.apply({ run, step, plan, batch: identity.batch, stepId: identity.step_id }),
  );
  return { step, applied: true, recorded, computed, seconds: (performance.now() - began) / 1000 };
}

function isEqual({ recorded, computed }: ReplayedStep): boolean {
  return recorded === computed;
}
