// Checkpoints are create-only, data files first, manifest last: when a manifest exists, all its files were complete. Files are canonical,
// so two writers of one state write the same bytes (R31).
import type { CheckpointManifest } from '../../spec/records/manifests.js';
import type { Digest, FileEntry } from '../../spec/records/parts.js';
import type { RunRecord } from '../../spec/records/run-records.js';
import type { Numerics } from '../../spec/records/numerics.js';
import { sha256File } from '../../base/sha256.js';
import { inParallel } from '../../base/in-parallel.js';
import {
  checkpointFileKey,
  type CheckpointHome,
  checkpointManifestKey,
  checkpointsFolder,
  collectionsFolder,
} from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';
import { readRecord, readSequence, recordFunction } from '../records/records.js';
import { readRun, readRunIfAny, timelineOf, timelinesOf } from './run-records.js';
import { CorruptCheckpoint, isDamage } from '../record-errors.js';
import { fetchListed, uploadSame, verifyListed } from '../files/stored-files.js';
import type { Transfer } from '../objects/transfer.js';

/** The one file of a checkpoint: a state, or the adapter that a Tinker server exports. */
const stateFile = 'state.safetensors';
const adapterFile = 'adapter.tar.gz';

interface CheckpointPlace extends CheckpointHome {
  file: string;
}

export interface CheckpointToWrite extends Transfer {
  step: number;
  state: Digest;
  numerics: Numerics;
  /** Path of the checkpoint's one file on the node's disk. */
  statePath: string;
  /** Called after all data files are stored and before the manifest is. */
  beforeManifest?: () => Promise<void>;
}

/** Place of a run's own checkpoints: `checkpoints/{project}/{model}/{run}/`. */
export function checkpointHome({ run, spec }: RunRecord): CheckpointPlace {
  const file = spec.model.served ? adapterFile : stateFile;
  return { project: spec.project, model: spec.model.name, run, file };
}

/** Place of a step's checkpoint: under the run whose folder holds the step (R5). */
export async function homeOfStep(
  store: ObjectStore,
  record: RunRecord,
  step: number,
): Promise<CheckpointPlace> {
  const run = await timelineOf(store, record.run, step);
  return checkpointHome(run === record.run ? record : await readRun(store, run));
}

export async function checkpointDataKey(
  store: ObjectStore,
  record: RunRecord,
  step: number,
): Promise<string> {
  const home = await homeOfStep(store, record, step);
  return checkpointFileKey(home, step, home.file);
}

/** Uploads a state. Adopts existing files with equal bytes; throws `Diverged` if the bytes differ. */
export async function writeCheckpoint(
  store: ObjectStore,
  record: RunRecord,
  checkpoint: CheckpointToWrite,
): Promise<CheckpointManifest> {
  const { step, state, numerics, statePath, signal, onProgress } = checkpoint;
  const home = await homeOfStep(store, record, step);
  const file: FileEntry = { path: home.file, ...(await sha256File(statePath, signal)) };
  await uploadSame(store, checkpointFileKey(home, step, file.path), statePath, file, { signal, onProgress });
  await checkpoint.beforeManifest?.();
  signal?.throwIfAborted();
  const manifest: CheckpointManifest = {
    schema: 'longhaul.checkpoint/1',
    run: home.run,
    step,
    state,
    numerics,
    files: [file],
  };
  return (await recordFunction(store, checkpointManifestKey(home, step), 'checkpoint', manifest)).record;
}

export async function checkpointExists(
  store: ObjectStore,
  record: RunRecord,
  step: number,
): Promise<boolean> {
  const home = await homeOfStep(store, record, step);
  return (await hasManifest(store, home, step)) && hasData(store, home, step);
}

async function hasManifest(store: ObjectStore, home: CheckpointHome, step: number): Promise<boolean> {
  return (await store.head(checkpointManifestKey(home, step))) !== null;
}

async function hasData(store: ObjectStore, home: CheckpointPlace, step: number): Promise<boolean> {
  return (await store.head(checkpointFileKey(home, step, home.file))) !== null;
}

/**
 * Steps that have a manifest, ascending, including an ancestor's steps (R5), without the steps of `listCollectedManifests`. Only a download
 * shows whether the data is complete.
 */
export async function listCheckpoints(store: ObjectStore, record: RunRecord): Promise<number[]> {
  return listManifests(store, record, false);
}

/**
 * Steps that have a manifest although a collection deleted the checkpoint: a delayed uploader wrote the manifest after the deletion. If
 * data is missing without a collection, that is damage: the step stays in `listCheckpoints`.
 */
export async function listCollectedManifests(store: ObjectStore, record: RunRecord): Promise<number[]> {
  return listManifests(store, record, true);
}

/** Tells whether a manifest has no data and a collection named its step. Reads each run's collections at most once. */
function manifestsLeft(store: ObjectStore): (home: CheckpointPlace, step: number) => Promise<boolean> {
  const collected = new Map<string, Promise<ReadonlySet<number>>>();
  return async (home, step) => {
    if (await hasData(store, home, step)) return false;
    let steps = collected.get(home.run);
    if (!steps) collected.set(home.run, (steps = collectedCheckpoints(store, home.run)));
    return (await steps).has(step);
  };
}

async function collectedCheckpoints(store: ObjectStore, run: string): Promise<ReadonlySet<number>> {
  const records = await readSequence(store, collectionsFolder(run), 'gc');
  return new Set(records.flatMap(({ checkpoints }) => checkpoints));
}

/** `left`: true lists the manifests whose checkpoint a collection has deleted, false all others. */
async function listManifests(store: ObjectStore, record: RunRecord, left: boolean): Promise<number[]> {
  const isLeft = manifestsLeft(store);
  const found: { step: number; home: CheckpointPlace }[] = [];
  for await (const { run, after, upTo } of timelinesOf(store, record.run)) {
    const home = checkpointHome(run === record.run ? record : await readRun(store, run));
    for (const name of await store.listFolder(checkpointsFolder(home))) {
      const step = Number(/^global_step_(0|[1-9][0-9]*)\/$/.exec(name)?.[1] ?? NaN);
      if (step > after && step <= upTo) found.push({ step, home });
    }
  }
  const counted = await inParallel(
    found,
    async ({ home, step }) => (await hasManifest(store, home, step)) && (await isLeft(home, step)) === left,
  );
  return found
    .filter((_, index) => counted[index])
    .map(({ step }) => step)
    .sort((a, b) => a - b);
}

/** Downloads the state of a checkpoint to `path`, checking size and sha256. Throws `CorruptCheckpoint`. */
export async function fetchCheckpoint(
  store: ObjectStore,
  record: RunRecord,
  step: number,
  path: string,
  transfer: Transfer = {},
): Promise<CheckpointManifest> {
  const home = await homeOfStep(store, record, step);
  const manifest = await readManifest(store, home, step);
  const file = manifest.files.find((entry) => entry.path === home.file);
  const manifestKey = checkpointManifestKey(home, step);
  if (!file) throw new CorruptCheckpoint(manifestKey, null, `it lists no ${home.file}`);
  await fetchListed(store, checkpointFileKey(home, step, file.path), file, path, transfer);
  return manifest;
}

/** Reads every byte of a checkpoint and compares sizes and sha256. Throws `CorruptCheckpoint`. */
export async function verifyCheckpoint(
  store: ObjectStore,
  record: RunRecord,
  step: number,
): Promise<CheckpointManifest> {
  const home = await homeOfStep(store, record, step);
  const manifest = await readManifest(store, home, step);
  for (const file of manifest.files)
    await verifyListed(store, checkpointFileKey(home, step, file.path), file);
  return manifest;
}

async function readManifest(
  store: ObjectStore,
  home: CheckpointHome,
  step: number,
): Promise<CheckpointManifest> {
  const key = checkpointManifestKey(home, step);
  const manifest = await readRecord(store, key, 'checkpoint');
  if (!manifest) throw new CorruptCheckpoint(key, null, 'it is missing: the upload never ended');
  if (manifest.run !== home.run || manifest.step !== step) {
    throw new CorruptCheckpoint(key, null, `it says step ${manifest.step} of ${manifest.run}`);
  }
  return manifest;
}

/** Says what is wrong with the run's checkpoint of a step; null if nothing is. `state`: the digest in the run's records. */
export async function checkpointDamage(
  store: ObjectStore,
  { run, step, state }: { run: string; step: number; state: Digest },
): Promise<string | null> {
  const timeline = await timelineOf(store, run, step);
  const record = await readRunIfAny(store, timeline);
  if (record === null) return `the record of ${timeline}, to which it belongs, is missing`;
  const home = checkpointHome(record);
  try {
    const manifest = await readRecord(store, checkpointManifestKey(home, step), 'checkpoint');
    if (manifest === null) return 'its manifest is gone';
    if (manifest.run !== timeline || manifest.step !== step)
      return `its manifest says step ${manifest.step} of ${manifest.run}`;
    if (manifest.state !== state)
      return `its manifest says state ${manifest.state.slice(0, 12)}…, but the run’s records say ${state.slice(0, 12)}…`;
    for (const { path, size } of manifest.files) {
      const info = await store.head(checkpointFileKey(home, step, path));
      if (info === null) return `its file ${path} is missing`;
      if (info.size !== size) return `its file ${path} has ${info.size} bytes, but its manifest says ${size}`;
    }
    return null;
  } catch (error) {
    return `its manifest cannot be read: ${unreadable(error)}`;
  }
}

/** Message of an error that shows damaged content. Rethrows any other error: a store that does not answer is not damaged. */
export function unreadable(error: unknown): string {
  if (isDamage(error)) return error.message;
  throw error;
}
