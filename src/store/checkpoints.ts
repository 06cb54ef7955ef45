// Checkpoints: data files first, manifest last, all create-only. Without a whole manifest there is no checkpoint; with
// one, every file was there with its bytes. Files are canonical, so two that save one state write the same bytes (R31).
import type { CheckpointManifest, Digest, FileEntry, Numerics, RunRecord } from '../spec/records.js';
import { sha256File } from './canonical.js';
import { inParallel } from './in-parallel.js';
import {
  checkpointFileKey,
  checkpointManifestKey,
  checkpointsFolder,
  type CheckpointHome,
} from './layout.js';
import type { ObjectStore } from './object-store.js';
import { readRecord, recordFunction } from './records.js';
import { readRun, timelineOf, timelinesOf } from './run-records.js';
import { CorruptCheckpoint } from './store-errors.js';
import { fetchListed, uploadSame, verifyListed } from './stored-files.js';
import type { Transfer } from './transfer.js';

const STATE_FILE = 'state.safetensors';

export interface CheckpointToWrite extends Transfer {
  step: number;
  state: Digest;
  numerics: Numerics;
  /** `state.safetensors` on the node's disk. */
  statePath: string;
  /** Runs after all data files are there and before the manifest is. */
  beforeManifest?: () => Promise<void>;
}

/** Where the checkpoints are that a run has written: `checkpoints/{project}/{model}/{run}/`. */
export function checkpointHome(record: RunRecord): CheckpointHome {
  return { project: record.spec.project, model: record.spec.model.name, run: record.run };
}

/** Where the checkpoint of a step is: under the run whose timeline it lies on (R5). */
export async function homeOfStep(
  store: ObjectStore,
  record: RunRecord,
  step: number,
): Promise<CheckpointHome> {
  const run = await timelineOf(store, record.run, step);
  return checkpointHome(run === record.run ? record : await readRun(store, run));
}

/** Uploads a state. What is there already is compared and adopted; other bytes are `Diverged`. */
export async function writeCheckpoint(
  store: ObjectStore,
  record: RunRecord,
  checkpoint: CheckpointToWrite,
): Promise<CheckpointManifest> {
  const { step, state, numerics, statePath, signal, onProgress } = checkpoint;
  const home = await homeOfStep(store, record, step);
  const file: FileEntry = { path: STATE_FILE, ...(await sha256File(statePath, signal)) };
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
  return isWhole(store, await homeOfStep(store, record, step), step);
}

/**
 * Both files: a manifest alone is what an uploader leaves that stood still before its last write, while another one finished the
 * checkpoint and a collection took it.
 */
async function isWhole(store: ObjectStore, home: CheckpointHome, step: number): Promise<boolean> {
  if ((await store.head(checkpointManifestKey(home, step))) === null) return false;
  return (await store.head(checkpointFileKey(home, step, STATE_FILE))) !== null;
}

/** Steps that have a manifest and data, ascending, an ancestor's included (R5). Whether the data is whole shows when it is fetched. */
export async function listCheckpoints(store: ObjectStore, record: RunRecord): Promise<number[]> {
  return listSteps(store, record, (home, step) => isWhole(store, home, step));
}

/** As `listCheckpoints`: steps of which there is a manifest without data. */
export async function listBareManifests(store: ObjectStore, record: RunRecord): Promise<number[]> {
  return listSteps(store, record, async (home, step) => {
    const manifest = await store.head(checkpointManifestKey(home, step));
    return manifest !== null && !(await isWhole(store, home, step));
  });
}

async function listSteps(
  store: ObjectStore,
  record: RunRecord,
  counts: (home: CheckpointHome, step: number) => Promise<boolean>,
): Promise<number[]> {
  const found: { step: number; home: CheckpointHome }[] = [];
  for await (const { run, after, upTo } of timelinesOf(store, record.run)) {
    const home = checkpointHome(run === record.run ? record : await readRun(store, run));
    for (const name of await store.listFolder(checkpointsFolder(home))) {
      const step = Number(/^global_step_(0|[1-9][0-9]*)\/$/.exec(name)?.[1] ?? NaN);
      if (step > after && step <= upTo) found.push({ step, home });
    }
  }
  const counted = await inParallel(found, ({ home, step }) => counts(home, step));
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
  const file = manifest.files.find((entry) => entry.path === STATE_FILE);
  const manifestKey = checkpointManifestKey(home, step);
  if (!file) throw new CorruptCheckpoint(manifestKey, null, `it lists no ${STATE_FILE}`);
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
    throw new CorruptCheckpoint(key, null, `it says that it is step ${manifest.step} of ${manifest.run}`);
  }
  return manifest;
}
