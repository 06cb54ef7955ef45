// Discards what the unfinished step of a run has sampled (R24): a control record sets its episodes, waves and batch aside, and the step is
// sampled again with other random numbers. The run must be paused or blocked.
import { randomUUID } from 'node:crypto';
import type { ControlRecord } from '../../spec/records/control-records.js';
import type { GrpoPlan } from '../../spec/records/plan.js';
import { slotsWith, type WaveRecord } from '../../spec/records/wave.js';
import {
  attemptsFolder,
  batchKey,
  controlFolder,
  episodeKey,
  episodesFolder,
  planKey,
  sequenceKey,
  stepFolder,
  updateKey,
  waveKey,
  wavesFolder,
} from '../record-keys.js';
import type { ObjectInfo, ObjectStore } from '../objects/object-store.js';
import { appendSequence, readIfWhole, requireRecord } from '../records/records.js';
import { readControl } from './control-records.js';
import { inUse, isReplaceable, keysSetAside, viewWithout } from './quarantine.js';
import { lastCommittedStep } from './run-records.js';

export type Resampling =
  | { kind: 'nothing'; why: string }
  /** `control`: number of the control record; `episodes`: number of finished episodes that it sets aside. */
  | { kind: 'discarded'; step: number; control: number; episodes: number };

/** How often `step` was discarded to be sampled again. */
export function timesResampled(records: readonly ControlRecord[], step: number): number {
  return resamplesOf(records, step).length;
}

/**
 * Discards what the step after the last committed one has sampled. Does nothing if there is nothing to discard, for example after an earlier call.
 * Throws `UnreadableRecord` if the step's plan cannot be read.
 */
export async function discardSamples(store: ObjectStore, run: string): Promise<Resampling> {
  const step = (await lastCommittedStep(store, run)) + 1;
  const records = await readControl(store, run);
  const aside = keysSetAside(records);
  const view = viewWithout(store, aside);
  if (step < 1 || !(await view.head(planKey(run, step))))
    return { kind: 'nothing', why: `step ${step} of ${run} is not planned yet, so nothing was sampled` };
  const plan = await requireRecord(view, planKey(run, step), 'plan');
  if (plan.kind !== 'grpo' || plan.rebased) {
    const kind = plan.rebased ? 'rebased' : 'supervised';
    return { kind: 'nothing', why: `step ${step} of ${run} is ${kind}: there is nothing to sample again` };
  }
  const found: ObjectInfo[] = [];
  for await (const info of view.list(stepFolder(run, step))) found.push(info);
  const made = found.map(({ key }) => key).filter((key) => isSampled(key, run, step));
  const earlier = resamplesOf(records, step).at(-1);
  if (made.length === 0 && !(await hasBegun(view, run, step, found, earlier))) {
    const why = earlier ? `control record ${earlier.n} has set aside what it had` : 'no attempt has begun';
    return { kind: 'nothing', why: `step ${step} of ${run} has sampled nothing: ${why}` };
  }
  const keys = [...new Set([...made, ...(await keysToCome(view, plan, made))])].sort();
  const record = await appendSequence(
    store,
    controlFolder(run),
    'control',
    async (n, existing) => {
      const other = resamplesOf(existing.slice(records.length), step).at(-1);
      if (other) return other;
      if (await store.head(updateKey(run, step)))
        throw new Error(`step ${step} of ${run} was committed meanwhile: nothing is set aside`);
      return {
        ...{ schema: 'longhaul.control/3', n, update_id: `resample/${randomUUID()}` },
        change: { kind: 'resample', step, keys: keys.map((key) => inUse(key, aside)) },
        observed: { at: new Date().toISOString() },
      };
    },
    records,
  );
  const episodes = made.filter((key) => key.startsWith(episodesFolder(run, step))).length;
  return { kind: 'discarded', step, control: record.n, episodes };
}

function resamplesOf(records: readonly ControlRecord[], step: number): ControlRecord[] {
  return records.filter(({ change }) => change.kind === 'resample' && change.step === step);
}

/** True if the record at `key` is the step's batch, or one of its episodes or waves. */
function isSampled(key: string, run: string, step: number): boolean {
  const folders = [episodesFolder(run, step), wavesFolder(run, step)];
  const isOne = key === batchKey(run, step) || folders.some((folder) => key.startsWith(folder));
  return isOne && isReplaceable(key);
}

/**
 * True if an attempt has announced episodes of the step since its last resample; turns of these may be in journals. Compares times of the store's
 * listings.
 */
async function hasBegun(
  view: ObjectStore,
  run: string,
  step: number,
  found: readonly ObjectInfo[],
  earlier: ControlRecord | undefined,
): Promise<boolean> {
  let since = new Date(0);
  if (earlier)
    for await (const { key, modified } of view.list(sequenceKey(controlFolder(run), earlier.n)))
      if (key === sequenceKey(controlFolder(run), earlier.n)) since = modified;
  for (const { key, modified } of found) {
    if (!key.startsWith(attemptsFolder(run, step)) || modified <= since) continue;
    const attempt = await readIfWhole(view, key, 'attempt');
    if (attempt?.starts.some((start) => start.startsWith(episodesFolder(run, step)))) return true;
  }
  return false;
}

/** Keys that a delayed attempt may still write: all rollouts, the next wave, and the batch. `made`: the step's records so far. */
async function keysToCome(view: ObjectStore, plan: GrpoPlan, made: readonly string[]): Promise<string[]> {
  const { run, step } = plan;
  const stored = made.filter((key) => key.startsWith(wavesFolder(run, step)));
  const waves: WaveRecord[] = [];
  for (const key of stored) {
    const wave = await readIfWhole(view, key, 'wave');
    if (wave) waves.push(wave);
  }
  const rollouts = slotsWith(plan, waves).flatMap(({ slot }) =>
    Array.from({ length: plan.samples_per_slot }, (_, sample) => episodeKey(run, step, slot, sample)),
  );
  const next = plan.dynamic_sampling ? [waveKey(run, step, stored.length + 1)] : [];
  return [...rollouts, ...next, batchKey(run, step)];
}
