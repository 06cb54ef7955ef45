// Forgeries by somebody who knows the rules: after a change, all digests that depend on it are computed again, so that the chain is
// consistent.
import { sealAgain } from '../signed-chain.js';
import * as layout from '../../../../src/store/record-keys.js';
import { requireRecord } from '../../../../src/store/records/records.js';
import { readState } from '../../../../src/store/runs/run-records.js';
import type { EvaluationResult } from '../../../../src/spec/records/evaluation-records.js';
import {
  audited,
  type Doctored,
  type Doctoring,
  episode,
  evalResult,
  home,
  learned,
  otherDigest,
  plan,
  run,
  update,
} from '../doctored-run.js';
import { sha256Hex } from '../../../../src/base/sha256.js';
import type { RunRecord } from '../../../../src/spec/records/run-records.js';

const owner = (n: number): string => layout.sequenceKey(layout.ownersFolder(run), n);

/** Changes the run's record, and no other record of the chain. */
const respecified = (change: (record: RunRecord) => void) => (store: Doctored) =>
  store.edit(layout.runKey(run), 'run', change);

export const forgeries: readonly Doctoring[] = [
  {
    what: 'a plan with another learning rate, all later digests computed again',
    rule: 'R7',
    at: () => plan(learned),
    names: 'gives another plan: optimizer.learning_rates.0 (stored 0.5,',
    doctor: (store) =>
      sealAgain(store, learned, (record) => {
        record.optimizer.learning_rates = [0.5];
      }),
  },
  {
    what: 'a plan with another temperature, all later digests computed again',
    rule: 'R7',
    at: () => plan(learned),
    names: 'gives another plan: sampling.temperature (stored 0.25,',
    doctor: (store) =>
      sealAgain(store, learned, (record) => {
        record.sampling.temperature = 0.25;
      }),
  },
  {
    what: 'another learning rate in run.json',
    rule: 'R1',
    at: () => layout.runKey(run),
    names: 'it was changed',
    doctor: respecified(({ spec }) => {
      spec.trainer.lr *= 3;
    }),
  },
  {
    what: 'another seed in run.json and in its spec',
    rule: 'R5',
    at: () => layout.runKey(run),
    names: 'its base_model is',
    doctor: respecified((record) => {
      record.seed += 1;
      record.spec.seed += 1;
    }),
  },
  {
    what: 'another seed in run.json, but not in its spec',
    rule: 'R5',
    at: () => layout.runKey(run),
    names: 'its seed is',
    doctor: respecified((record) => {
      record.seed += 1;
    }),
  },
  {
    what: 'another architecture in run.json',
    rule: 'R5',
    at: () => layout.runKey(run),
    names: 'its base_model is',
    doctor: respecified(({ spec }) => {
      if (spec.model.architecture) spec.model.architecture.rope_theta += 1;
    }),
  },
  {
    what: 'an owner record that names another workflow',
    rule: 'R1',
    at: () => layout.ownersFolder(run),
    names: 'it was changed',
    doctor: (store) => store.edit(owner(1), 'owner', (record) => (record.workflowId = 'train/another')),
  },
  {
    what: 'a checkpoint with changed tensors, and a manifest with their digest',
    rule: 'R31',
    at: () => layout.checkpointFileKey(home, audited.last, 'state.safetensors'),
    names: 'its tensors are those of state',
    doctor: async (store) => {
      const key = layout.checkpointFileKey(home, audited.last, 'state.safetensors');
      const bytes = store.bytes(key);
      bytes[bytes.length - 5] = (bytes[bytes.length - 5] as number) ^ 1;
      store.write(key, bytes);
      await store.edit(layout.checkpointManifestKey(home, audited.last), 'checkpoint', ({ files }) => {
        for (const file of files) file.sha256 = sha256Hex(bytes);
      });
    },
  },
  {
    what: 'an evaluation of a state that the run never had',
    rule: 'R5',
    at: () => layout.evaluationResultKey(otherDigest, audited.evaluation.suite),
    names: 'the chain has no such state',
    doctor: async (store) => {
      const result = await requireRecord(store.store, evalResult(), 'evaluation');
      const forged: EvaluationResult = { ...result, state: otherDigest };
      await store.put(layout.evaluationResultKey(otherDigest, result.suite), 'evaluation', forged);
    },
  },
  {
    what: 'a gap in the records of an attempt',
    rule: 'R2',
    at: () => layout.attemptsFolder(run, learned),
    names: 'it is missing, but the same attempt has a later record',
    doctor: async (store) => {
      const folder = layout.attemptsFolder(run, learned);
      for await (const { key } of store.store.list(folder)) {
        if (key.endsWith('/1.json')) store.write(key.replace('/1.json', '/3.json'), store.bytes(key));
      }
    },
  },
];

const sameMeaning = 'bytes that change no meaning';
/** Place of the time in a gzip header (RFC 1952), four bytes. */
const gzipTimeAt = 4;

export interface Unclaimed {
  what: string;
  /** Text that `notClaimed` must contain. */
  says: string;
  doctor: (store: Doctored) => Promise<void> | void;
}

/** Changes that no record disproves; the audit must say that it claims nothing about them. */
export const unclaimed: readonly Unclaimed[] = [
  {
    what: 'a second owner after the last plan',
    says: `${owner(2)}: no step was planned under this owner`,
    doctor: async (store) => {
      store.write(owner(2), store.bytes(owner(1)));
      await store.edit(owner(2), 'owner', (record) =>
        Object.assign(record, { n: 2, workflowId: 'train/another' }),
      );
    },
  },
  {
    what: 'a control record after the last plan',
    says: `${layout.controlFolder(run)}1.json: no plan covers the change in it`,
    doctor: (store) =>
      store.put(`${layout.controlFolder(run)}1.json`, 'control', {
        ...{ schema: 'longhaul.control/3', n: 1, update_id: 'forged' },
        change: { kind: 'setHyperparameters', lr: 0.5 },
        observed: { at: new Date().toISOString() },
      }),
  },
  {
    what: 'an evaluation of a run that is not in the store',
    says: 'it names the run ghost, which is not in the store',
    doctor: async (store) => {
      const result = await requireRecord(store.store, evalResult(), 'evaluation');
      const forged = { ...result, state: otherDigest, observed: { ...result.observed, run: 'ghost' } };
      await store.put(layout.evaluationResultKey(otherDigest, result.suite), 'evaluation', forged);
    },
  },
  {
    what: 'an update with other metrics',
    says: 'the observed parts of records',
    doctor: (store) =>
      store.edit(
        layout.updateKey(run, learned),
        'update',
        ({ observed }) => (observed.metrics['reward/avg_pass_at_1'] = 0.99),
      ),
  },
  {
    what: 'changed trajectories',
    says: 'trajectories/, reports/ and comparisons',
    doctor: async (store) => {
      await readState(store.store, run, 1);
      for await (const { key } of store.store.list('trajectories/')) store.write(key, '{}\n');
    },
  },
  {
    what: 'a record with a newline more',
    says: sameMeaning,
    doctor: (store) => {
      const text = store.bytes(update(learned)).toString();
      store.write(update(learned), text.replace('{', '{\n'));
    },
  },
  {
    what: 'another time in the gzip header of an episode',
    says: sameMeaning,
    doctor: (store) => {
      const bytes = store.bytes(episode(learned));
      bytes.writeUInt32LE(1_700_000_000, gzipTimeAt);
      store.write(episode(learned), bytes);
    },
  },
  {
    what: 'an object that no record names',
    says: sameMeaning,
    doctor: (store) => store.write(`${layout.stepFolder(run, learned)}stray.json`, '{}'),
  },
];
