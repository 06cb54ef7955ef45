// Writes the records of invented runs. Their states are digests of names, and their checkpoints hold a line of text.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Digest } from '../../src/spec/records/parts.js';
import type { RunRecord } from '../../src/spec/records/run-records.js';
import type { Numerics } from '../../src/spec/records/numerics.js';
import { sha256Hex } from '../../src/base/sha256.js';
import { writeCheckpoint } from '../../src/store/runs/checkpoints.js';
import { runKey, updateKey } from '../../src/store/record-keys.js';
import type { ObjectStore } from '../../src/store/objects/object-store.js';
import { adoptOrCreate } from '../../src/store/records/records.js';
import { recordsOfAllKinds } from './fixtures.js';

const numerics = { backend: 'cpu', version: 1 } as const;

export interface MadeRun {
  steps: number;
  checkpoints: number[];
  model?: string;
  project?: string;
  tokenizer?: Digest;
  chat_template?: Digest;
  tool_parser?: string;
  lineage?: RunRecord['lineage'];
  numerics?: Numerics;
  /** Steps whose update applied nothing. */
  skipped?: number[];
}

/** The digest of an invented run's state after `step`. */
export const stateOf = (run: string, step: number): Digest => sha256Hex(`${run} ${step}`);

/** Writes an invented run, without plans, episodes and batches. */
export async function makeRunIn(store: ObjectStore, run: string, made: MadeRun): Promise<RunRecord> {
  const kinds = recordsOfAllKinds();
  const { lineage = null, skipped = [] } = made;
  const record: RunRecord = {
    ...kinds.run,
    run,
    name: run.replace(/~.*/, ''),
    lineage,
    tokenizer: made.tokenizer ?? kinds.run.tokenizer,
    chat_template: made.chat_template ?? kinds.run.chat_template,
    tool_parser: made.tool_parser ?? kinds.run.tool_parser,
    spec: {
      ...kinds.run.spec,
      project: made.project ?? 'longhaul',
      warm_start: [],
      trainer: { ...kinds.run.spec.trainer, max_training_steps: made.steps, eval_interval: 0 },
      model: { ...kinds.run.spec.model, name: made.model ?? 'm' },
    },
  };
  await adoptOrCreate(store, runKey(run), 'run', record);
  let state = lineage?.state ?? stateOf(run, 0);
  if (lineage === null)
    await adoptOrCreate(store, updateKey(run, 0), 'base', {
      ...kinds.base,
      identity: { ...kinds.base.identity, run, state, ...(made.numerics && { numerics: made.numerics }) },
    });
  const states = new Map([[lineage?.step ?? 0, state]]);
  for (let step = (lineage?.step ?? 0) + 1; step <= made.steps; step++) {
    const applied = !skipped.includes(step);
    const next = applied ? stateOf(run, step) : state;
    await adoptOrCreate(store, updateKey(run, step), 'update', {
      ...kinds.update,
      identity: {
        ...kinds.update.identity,
        run,
        step,
        previous_state: state,
        state: next,
        applied: applied ? true : { reason: 'nothing to learn' },
      },
    });
    states.set(step, (state = next));
  }
  const scratch = await mkdtemp(join(tmpdir(), 'longhaul-made-run-'));
  for (const step of made.checkpoints) {
    const statePath = join(scratch, 'state');
    await writeFile(statePath, `state ${step} of ${run}`);
    await writeCheckpoint(store, record, { step, state: states.get(step) as Digest, numerics, statePath });
  }
  await rm(scratch, { recursive: true });
  return record;
}
