// Removes a run's saved states from a Tinker server: each holds a whole optimizer, and with `save_every` 1 there would be one a step.
import { InDoubt, isTurnedAway, NotConnected } from '../../engine/tinker/call-errors.js';
import type { SavedOnServer, TinkerService } from '../../engine/tinker/service.js';
import { lastWarmStep } from '../../spec/warm-start.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { isSamplerOf, stepOfSave } from '../../store/records/served-names.js';
import { listCheckpoints } from '../../store/runs/checkpoints.js';
import { readRun, readState } from '../../store/runs/run-records.js';
import { readInstances, readSavedStates, recordRemoved } from '../../store/runs/served-models.js';
import type { CommittedState } from '../state-keeper.js';

/** The next update may wait for it. */
const withinMs = 30_000;

interface Removal {
  store: ObjectStore;
  service: TinkerService;
  /** Node, for records. */
  by: string;
  log: (message: string) => void;
}

interface Spared {
  /** Step whose state is being uploaded. */
  spare: number | undefined;
  /** Path of the weights that are being sampled. */
  sampled: string | undefined;
}

/**
 * Keeps the two newest saved states, and those from which the states of checkpoints and the one that GRPO begins with follow: every other
 * state follows from one of these and logged batches. The weights for sampling are kept for the newest steps alone, since a checkpoint has its own copy. What
 * cannot be removed is removed with a later checkpoint.
 */
export async function removeSaved(
  removal: Removal,
  { run, step }: CommittedState,
  { spare, sampled }: Spared,
): Promise<void> {
  const { store, service, log } = removal;
  const record = await readRun(store, run);
  const every = record.spec.trainer.save_every ?? 1;
  const needed = [step, step - every, ...(spare === undefined ? [] : [spare]), lastWarmStep(record.spec)];
  const steps = new Set(
    [...needed, ...(await listCheckpoints(store, record))].map((one) => one - (one % every)),
  );
  const newest = [step, step - 1, ...(spare === undefined ? [] : [spare])].filter((one) => one >= 0);
  const states = await Promise.all(newest.map((one) => readState(store, run, one)));
  const isKept = ({ checkpoint_type, checkpoint_id, tinker_path }: SavedOnServer): boolean => {
    if (checkpoint_type === 'sampler')
      return tinker_path === sampled || states.some((state) => isSamplerOf(checkpoint_id, state));
    const saved = stepOfSave(checkpoint_id);
    return saved === null || saved > step || steps.has(saved);
  };
  const models = new Set((await readInstances(store, run)).map(({ model }) => model));
  const signal = AbortSignal.timeout(withinMs);
  try {
    for (const model of models)
      for (const one of await service.checkpoints(model, { signal, maxWaitMs: 0 }))
        if (!isKept(one)) await remove(removal, { run, model, ...one }, signal);
  } catch (error) {
    const isOfServer = isTurnedAway(error) || error instanceof InDoubt || error instanceof NotConnected;
    if (!isOfServer && !signal.aborted) throw error;
    log(`${run}: some older states stay on the server: ${(error as Error).message}`);
  }
}

/** The record comes first: nobody tries to load what may be gone. */
async function remove(
  { store, service, by }: Removal,
  { run, model, ...saved }: SavedOnServer & { run: string; model: string },
  signal: AbortSignal,
): Promise<void> {
  const step = saved.checkpoint_type === 'training' ? stepOfSave(saved.checkpoint_id) : null;
  if (step !== null) {
    const recorded = (await readSavedStates(store, run, step)).find(({ path }) => path === saved.tinker_path);
    if (recorded) await recordRemoved(store, recorded, by);
  }
  await service.removeCheckpoint(model, saved, signal);
}
