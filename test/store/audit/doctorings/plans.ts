// Doctored plans, which contradict their updates or the run's data.
import * as layout from '../../../../src/store/record-keys.js';
import { requireRecord } from '../../../../src/store/records/records.js';
import {
  type Doctoring,
  edited,
  learned,
  otherDigest,
  plan,
  run,
  supervised,
  update,
} from '../doctored-run.js';

export const plans: readonly Doctoring[] = [
  {
    what: 'a plan whose KL term uses other weights than those from which GRPO started',
    rule: 'R10',
    names: 'its KL term',
    ...edited(plan(learned), 'plan', (record) => {
      Object.assign(record.loss, { kl_weight: 0.1, kl_estimator: 'k3' });
      record.reference = otherDigest;
    }),
  },
  {
    what: 'a plan was changed after it was carried out',
    rule: 'R7',
    ...edited(plan(2), 'plan', (plan) => (plan.optimizer.learning_rates = [0.5])),
  },
  {
    what: 'a plan is missing',
    rule: 'R7',
    at: () => plan(2),
    doctor: (store) => store.remove(plan(2)),
  },
  {
    what: 'a plan that names another dataset',
    rule: 'R7',
    ...edited(plan(2), 'plan', (plan) => (plan.digests.dataset = '0'.repeat(64))),
  },
  {
    what: 'an update with other numerics than its plan',
    rule: 'R18',
    at: () => plan(2),
    doctor: (store) => store.edit(update(2), 'update', ({ identity }) => (identity.numerics.version += 1)),
  },
  {
    what: 'demonstrations that do not match their recorded sha256',
    rule: 'R7',
    at: () => 'demonstrations.jsonl',
    doctor: async (store) => {
      const { dataset } = await requireRecord(store.store, layout.runKey(run), 'run');
      const key = layout.datasetFileKey(dataset.name, dataset.version, 'demonstrations.jsonl');
      store.write(key, store.bytes(key).subarray(10));
    },
  },
  {
    what: 'a plan that names another step',
    rule: 'R7',
    names: 'it says step',
    ...edited(plan(learned), 'plan', (record) => (record.step += 1)),
  },
  {
    what: 'a plan made for another state',
    rule: 'R7',
    names: 'it was made for state',
    ...edited(plan(learned), 'plan', (record) => (record.previous_state = otherDigest)),
  },
  {
    what: 'a supervised plan at a GRPO step',
    rule: 'R7',
    at: () => plan(learned),
    names: 'it is a sft plan',
    doctor: (store) => store.write(plan(learned), store.bytes(plan(supervised))),
  },
  {
    what: 'a plan whose slots are not numbered from 0',
    rule: 'R7',
    names: 'slot 0 has the number 5',
    ...edited(plan(learned), 'plan', (record) => {
      if (record.kind === 'grpo' && record.slots[0]) record.slots[0].slot = 5;
    }),
  },
  {
    what: 'a tokenizer that does not match its recorded sha256',
    rule: 'R1',
    at: () => layout.batchKey(run, supervised),
    names: 'its bytes do not match its name',
    doctor: async (store) => {
      const { tokenizer } = await requireRecord(store.store, layout.runKey(run), 'run');
      store.write(layout.assetKey(tokenizer), '{}');
    },
  },
  {
    what: 'tasks that do not match their recorded sha256',
    rule: 'R1',
    at: () => layout.batchKey(run, supervised),
    names: 'tasks.jsonl is unreadable: its sha256 is',
    doctor: async (store) => {
      const { dataset } = await requireRecord(store.store, layout.runKey(run), 'run');
      const key = layout.datasetFileKey(dataset.name, dataset.version, 'tasks.jsonl');
      store.write(key, store.bytes(key).subarray(10));
    },
  },
];
