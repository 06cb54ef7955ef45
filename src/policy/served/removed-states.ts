// Removes a run's saved states from a Tinker server: each holds a whole optimizer, and with `save_every` 1 there would be one a step.
import type { SavedOnServer, TinkerService } from '../../engine/tinker/service.js';
import { lastWarmStep } from '../../spec/schedule.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { isSamplerOf, stepOfSave } from '../../store/records/served-names.js';
import { listCheckpoints } from '../../store/runs/checkpoints.js';
import { lastCommittedStep, readRun, readState } from '../../store/runs/run-records.js';
import {
  isTrained,
  readModels,
  readSavedStates,
  recordRemoved,
  withoutRemoved,
} from '../../store/runs/served-models.js';

const withinMs = 30_000;

interface Removal {
  store: ObjectStore;
  service: TinkerService;
  /** Node, for records. */
  by: string;
  log: (message: string) => void;
  /** Models that are ended and of which the server has nothing any more; a removal adds to them. */
  emptied: Set<string>;
}

/**
 * Keeps the two newest saved states, and those from which the states of checkpoints and the one that GRPO begins with follow: every other
 * state follows from one of these and logged batches. The weights for sampling are kept for the newest steps alone, since a checkpoint has
 * its own copy; `sampled`: path of those in use. What cannot be removed is removed with a later checkpoint. Never throws.
 */
export async function removeSaved(removal: Removal, run: string, sampled: string | undefined): Promise<void> {
  const { store, service, log, emptied } = removal;
  const signal = AbortSignal.timeout(withinMs);
  try {
    const step = await lastCommittedStep(store, run);
    const listed: Listed[] = [];
    for (const { record, ended } of await readModels(store, run)) {
      const { model } = record;
      // Another node may be sampling from a model that is not trained.
      if (emptied.has(model) || !(ended || isTrained(record))) continue;
      const found = await service.checkpoints(model, { signal, maxWaitMs: 0 });
      if (found.length === 0 && ended) emptied.add(model);
      listed.push(...found.map((one) => ({ run, model, ...one })));
    }
    const isKept = await keptOf(removal, { run, step, sampled }, listed);
    for (const one of listed.filter((one) => !isKept(one))) {
      // A process that was suspended meanwhile knows nothing of newer states.
      if ((await lastCommittedStep(store, run)) !== step) return;
      await remove(removal, one, signal).catch((error: unknown) => {
        signal.throwIfAborted();
        log(`${run}: ${one.tinker_path} stays on the server: ${(error as Error).message}`);
      });
    }
  } catch (error) {
    log(`${run}: older states stay on the server: ${(error as Error).message}`);
  }
}

type Listed = SavedOnServer & { run: string; model: string };

async function keptOf(
  { store }: Removal,
  { run, step, sampled }: { run: string; step: number; sampled: string | undefined },
  listed: readonly Listed[],
): Promise<(one: Listed) => boolean> {
  const record = await readRun(store, run);
  const saved = listed
    .filter(({ checkpoint_type }) => checkpoint_type === 'training')
    .flatMap(({ checkpoint_id }) => stepOfSave(checkpoint_id) ?? [])
    .filter((one) => one <= step);
  const steps: number[] = [];
  // Not every step has a saved state that can be loaded: one that applied nothing has none, and its weights may have been saved all the same.
  for (const one of [...new Set(saved)].sort((a, b) => a - b))
    if (withoutRemoved(await readSavedStates(store, run, one)).length > 0) steps.push(one);
  const covering = (wanted: number): number[] => steps.filter((one) => one <= wanted).slice(-1);
  const needed = [...(await listCheckpoints(store, record)), lastWarmStep(record.spec)];
  const kept = new Set([...steps.slice(-2), ...needed.flatMap(covering)]);
  const newest = [step, step - 1].filter((one) => one >= 0);
  const states = await Promise.all(newest.map((one) => readState(store, run, one)));
  return ({ checkpoint_type, checkpoint_id, tinker_path }) => {
    if (checkpoint_type === 'sampler')
      return tinker_path === sampled || states.some((state) => isSamplerOf(checkpoint_id, state));
    const savedStep = stepOfSave(checkpoint_id);
    return savedStep === null || savedStep > step || kept.has(savedStep);
  };
}

/** The record comes first: nobody tries to load what may be gone. */
async function remove(
  { store, service, by }: Removal,
  { run, model, ...saved }: Listed,
  signal: AbortSignal,
): Promise<void> {
  const step = saved.checkpoint_type === 'training' ? stepOfSave(saved.checkpoint_id) : null;
  if (step !== null) {
    const recorded = (await readSavedStates(store, run, step)).find(({ path }) => path === saved.tinker_path);
    if (recorded) await recordRemoved(store, recorded, by);
  }
  await service.removeCheckpoint(model, saved, signal);
}
