// Checkpoints: data files first, manifest last, all create-only. Without a whole manifest there is no checkpoint; with
// one, every file was there with its bytes. Files are canonical, so two that save one state write the same bytes (R31).
import { rm } from 'node:fs/promises';
import type { CheckpointManifest, Digest, FileEntry, Numerics, RunRecord } from '../spec/records.js';
import { sha256File, sha256Pieces } from './canonical.js';
import {
  checkpointFileKey,
  checkpointManifestKey,
  checkpointsFolder,
  type CheckpointHome,
} from './layout.js';
import type { ObjectStore } from './object-store.js';
import { readRecord, recordFunction } from './records.js';
import { CorruptCheckpoint, Diverged } from './store-errors.js';

const STATE_FILE = 'state.safetensors';

export interface CheckpointToWrite {
  step: number;
  state: Digest;
  numerics: Numerics;
  /** `state.safetensors` on the node's disk. */
  statePath: string;
  /** Runs after all data files are there and before the manifest is. */
  beforeManifest?: () => Promise<void>;
  signal?: AbortSignal;
}

export interface SkippedCheckpoint {
  step: number;
  reason: string;
}

/** Where a run's checkpoints are: `checkpoints/{project}/{model}/{run}/`. */
export function checkpointHome(record: RunRecord): CheckpointHome {
  return { project: record.spec.project, model: record.spec.model.name, run: record.run };
}

/** Uploads a state. What is there already is compared and adopted; other bytes are `Diverged`. */
export async function writeCheckpoint(
  store: ObjectStore,
  record: RunRecord,
  checkpoint: CheckpointToWrite,
): Promise<CheckpointManifest> {
  const home = checkpointHome(record);
  const { step, state, numerics, statePath, signal } = checkpoint;
  const file: FileEntry = { path: STATE_FILE, ...(await sha256File(statePath, signal)) };
  const key = checkpointFileKey(home, step, file.path);
  if ((await store.createFromFile(key, statePath, signal)) === 'exists') await checkSame(store, key, file);
  await checkpoint.beforeManifest?.();
  signal?.throwIfAborted();
  const manifest: CheckpointManifest = {
    schema: 'longhaul.checkpoint/1',
    run: record.run,
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
  return (await store.head(checkpointManifestKey(checkpointHome(record), step))) !== null;
}

/** Steps that have a manifest, ascending. Whether their files are whole shows when they are fetched. */
export async function listCheckpoints(store: ObjectStore, record: RunRecord): Promise<number[]> {
  const { steps, incomplete } = await checkpointSteps(store, record);
  return steps.filter((step) => !incomplete.includes(step));
}

/** Downloads the state of a checkpoint to `path`, checking size and sha256. Throws `CorruptCheckpoint`. */
export async function fetchCheckpoint(
  store: ObjectStore,
  record: RunRecord,
  step: number,
  path: string,
  signal?: AbortSignal,
): Promise<CheckpointManifest> {
  const home = checkpointHome(record);
  const manifest = await readManifest(store, record, step);
  const file = manifest.files.find((entry) => entry.path === STATE_FILE);
  const manifestKey = checkpointManifestKey(home, step);
  if (!file) throw new CorruptCheckpoint(manifestKey, null, `it lists no ${STATE_FILE}`);
  const key = checkpointFileKey(home, step, file.path);
  if (!(await store.getToFile(key, path, signal))) {
    throw new CorruptCheckpoint(key, file.sha256, 'it is missing, though its manifest is there');
  }
  const found = await sha256File(path, signal);
  if (found.size !== file.size || found.sha256 !== file.sha256) {
    await rm(path, { force: true });
    throw new CorruptCheckpoint(key, file.sha256, mismatch(file, found));
  }
  return manifest;
}

/**
 * The newest checkpoint with step ≤ `maxStep` whose manifest is readable and whose files have their sizes, and what was
 * passed over on the way, newest first. `accept` may refuse one with a reason (another state than recorded, say).
 */
export async function newestCheckpoint(
  store: ObjectStore,
  record: RunRecord,
  maxStep: number,
  accept: (manifest: CheckpointManifest) => Promise<string | null> = () => Promise.resolve(null),
): Promise<{ found: CheckpointManifest | null; skipped: SkippedCheckpoint[] }> {
  const skipped: SkippedCheckpoint[] = [];
  const { steps, incomplete } = await checkpointSteps(store, record);
  for (const step of steps.filter((candidate) => candidate <= maxStep).reverse()) {
    if (incomplete.includes(step)) {
      skipped.push({ step, reason: 'its upload never ended: it has no manifest' });
      continue;
    }
    try {
      const manifest = await readManifest(store, record, step);
      await checkSizes(store, checkpointHome(record), manifest);
      const reason = await accept(manifest);
      if (reason === null) return { found: manifest, skipped };
      skipped.push({ step, reason });
    } catch (error) {
      if (
        !(error instanceof Error) ||
        !['CorruptCheckpoint', 'UnreadableRecord', 'NewerSchema'].includes(error.name)
      ) {
        throw error;
      }
      skipped.push({ step, reason: error.message });
    }
  }
  return { found: null, skipped };
}

/** Reads every byte of a checkpoint and compares sizes and sha256. Throws `CorruptCheckpoint`. */
export async function verifyCheckpoint(
  store: ObjectStore,
  record: RunRecord,
  step: number,
): Promise<CheckpointManifest> {
  const manifest = await readManifest(store, record, step);
  for (const file of manifest.files) {
    const key = checkpointFileKey(checkpointHome(record), step, file.path);
    const found = await digestOf(store, key);
    if (!found) throw new CorruptCheckpoint(key, file.sha256, 'it is missing, though its manifest is there');
    if (found.size !== file.size || found.sha256 !== file.sha256) {
      throw new CorruptCheckpoint(key, file.sha256, mismatch(file, found));
    }
  }
  return manifest;
}

async function checkpointSteps(
  store: ObjectStore,
  record: RunRecord,
): Promise<{ steps: number[]; incomplete: number[] }> {
  const home = checkpointHome(record);
  const steps = (await store.listFolder(checkpointsFolder(home)))
    .flatMap((name) => /^global_step_(0|[1-9][0-9]*)\/$/.exec(name)?.[1] ?? [])
    .map(Number)
    .sort((a, b) => a - b);
  const whole = await Promise.all(steps.map((step) => store.head(checkpointManifestKey(home, step))));
  return { steps, incomplete: steps.filter((_, i) => whole[i] === null) };
}

async function readManifest(
  store: ObjectStore,
  record: RunRecord,
  step: number,
): Promise<CheckpointManifest> {
  const key = checkpointManifestKey(checkpointHome(record), step);
  const manifest = await readRecord(store, key, 'checkpoint');
  if (!manifest) throw new CorruptCheckpoint(key, null, 'it is missing: the upload never ended');
  if (manifest.run !== record.run || manifest.step !== step) {
    throw new CorruptCheckpoint(key, null, `it says that it is step ${manifest.step} of ${manifest.run}`);
  }
  return manifest;
}

async function checkSizes(
  store: ObjectStore,
  home: CheckpointHome,
  manifest: CheckpointManifest,
): Promise<void> {
  for (const file of manifest.files) {
    const key = checkpointFileKey(home, manifest.step, file.path);
    const info = await store.head(key);
    if (!info) throw new CorruptCheckpoint(key, file.sha256, 'it is missing, though its manifest is there');
    if (info.size !== file.size) {
      throw new CorruptCheckpoint(
        key,
        file.sha256,
        `it has ${info.size} bytes, its manifest says ${file.size}`,
      );
    }
  }
}

async function checkSame(store: ObjectStore, key: string, file: FileEntry): Promise<void> {
  const found = await digestOf(store, key);
  if (found?.sha256 === file.sha256 && found.size === file.size) return;
  throw new Diverged(
    `${key}: the stored file has sha256 ${found?.sha256 ?? 'none'}, the one on disk ${file.sha256}. The stored one stands.`,
    { key, stored: found, computed: file },
  );
}

async function digestOf(store: ObjectStore, key: string): Promise<{ size: number; sha256: Digest } | null> {
  const pieces = await store.stream(key);
  return pieces && sha256Pieces(pieces);
}

function mismatch(file: FileEntry, found: { size: number; sha256: Digest }): string {
  return `it has ${found.size} bytes with sha256 ${found.sha256}; its manifest says ${file.size} with ${file.sha256}`;
}
