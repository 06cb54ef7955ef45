// Every kind of record, with its schema and the versions that this code reads. A record with an unknown member is refused.
import type { z } from 'zod';
import { attempt } from './attempt-records.js';
import { control } from './control-records.js';
import { episode, episodes } from './episode.js';
import { evaluated, evaluation, suite } from './evaluation-records.js';
import { checkpoint, dataset, weights } from './manifests.js';
import { plan } from './plan.js';
import { gate, gathered, taught } from './preparation-records.js';
import { gc, name, notice, owner, ref, run } from './run-records.js';
import { sweep, tally } from './sweep-record.js';
import { applied, instance, saved } from './served-model.js';
import { base, batch, update } from './update.js';
import { wave } from './wave.js';

/**
 * `base` is `steps/000000/update.json`; `batch` is the identity in a batch file, `episodes` the first line of a file of folded episodes.
 */
const schemas = {
  run,
  plan,
  wave,
  episode,
  episodes,
  batch,
  update,
  base,
  attempt,
  owner,
  control,
  name,
  notice,
  ref,
  gc,
  dataset,
  gathered,
  taught,
  gate,
  checkpoint,
  weights,
  suite,
  evaluation,
  evaluated,
  sweep,
  tally,
  instance,
  applied,
  saved,
};
export type RecordKind = keyof typeof schemas;
export type RecordTypes = { [Kind in RecordKind]: z.infer<(typeof schemas)[Kind]> };
export const recordSchemas: { [Kind in RecordKind]: z.ZodType<RecordTypes[Kind]> } = schemas;

/**
 * The newest version of each kind that this code knows; it writes this version. If it cannot read a run's older records of some kind, the
 * version of `run` rises, too: every reader of a run reads that record first, and so refuses the whole run by one error.
 */
export const schemaVersions: Record<RecordKind, number> = {
  run: 3,
  plan: 4,
  wave: 1,
  episode: 2,
  episodes: 2,
  batch: 2,
  update: 4,
  base: 1,
  attempt: 2,
  owner: 3,
  control: 3,
  name: 1,
  notice: 1,
  ref: 1,
  gc: 2,
  dataset: 2,
  gathered: 1,
  taught: 1,
  gate: 1,
  checkpoint: 1,
  weights: 1,
  suite: 2,
  evaluation: 3,
  evaluated: 1,
  sweep: 2,
  tally: 1,
  instance: 2,
  applied: 1,
  saved: 1,
};

/** The oldest version of a kind that this code reads; absent if it reads only the newest. */
export const oldestVersions: Partial<Record<RecordKind, number>> = { episodes: 1 };

/**
 * Kinds of records that contain their own sha256. These records steer a run. Because of the sha256, the first reader of a record with a
 * changed bit refuses the record.
 */
export const summedKinds = new Set<RecordKind>(['run', 'owner', 'control', 'update']);
