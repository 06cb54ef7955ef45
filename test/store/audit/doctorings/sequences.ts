// Doctored sequences (owners, control, names), and records that cannot be read.
import * as layout from '../../../../src/store/record-keys.js';
import {
  control,
  type Doctored,
  type Doctoring,
  edited,
  episode,
  learned,
  plan,
  run,
} from '../doctored-run.js';

const resumed = (store: Doctored, n: number): Promise<void> =>
  store.put(control(n), 'control', {
    schema: 'longhaul.control/3',
    n,
    update_id: `update-${n}`,
    change: { kind: 'resume' },
    observed: { at: new Date().toISOString() },
  });

export const sequences: readonly Doctoring[] = [
  {
    what: "the record of the plan's owner is missing",
    rule: 'R20',
    at: () => plan(2),
    doctor: (store) => store.remove(layout.ownersFolder(run)),
  },
  {
    what: 'one Update is recorded twice',
    rule: 'R21',
    at: () => layout.sequenceKey(layout.controlFolder(run), 2),
    doctor: async (store) => {
      for (const n of [1, 2]) {
        await store.put(layout.sequenceKey(layout.controlFolder(run), n), 'control', {
          schema: 'longhaul.control/3',
          n,
          update_id: 'the same',
          change: { kind: 'resume' },
          observed: { at: new Date().toISOString() },
        });
      }
    },
  },
  {
    what: 'a record that is cut off',
    rule: 'R1',
    at: () => episode(2),
    doctor: (store) => store.write(episode(2), store.bytes(episode(2)).subarray(0, 60)),
  },
  {
    what: 'a record of a newer schema',
    rule: 'R1',
    at: () => plan(2),
    doctor: (store) => {
      const text = store.bytes(plan(2)).toString('utf8');
      store.write(plan(2), text.replace('longhaul.plan/4', 'longhaul.plan/9'));
    },
  },
  {
    what: 'a plan applies a control record that does not exist',
    rule: 'R21',
    names: 'it covers control 3, which is missing',
    ...edited(plan(learned), 'plan', (record) => (record.control = 3)),
  },
  {
    what: 'a plan applies fewer control records than the plan before it',
    rule: 'R21',
    at: () => plan(learned + 1),
    names: 'less control',
    doctor: async (store) => {
      await resumed(store, 1);
      await store.edit(plan(learned), 'plan', (record) => (record.control = 1));
    },
  },
  {
    what: 'a plan made by an older owner than the plan before it',
    rule: 'R20',
    at: () => plan(learned + 1),
    names: 'older owner',
    doctor: async (store) => {
      const second = layout.sequenceKey(layout.ownersFolder(run), 2);
      store.write(second, store.bytes(layout.sequenceKey(layout.ownersFolder(run), 1)));
      await store.edit(second, 'owner', (owner) => (owner.n = 2));
      await store.edit(plan(learned), 'plan', (record) => (record.owner = 2));
    },
  },
  {
    what: 'a gap in the control records',
    rule: 'R1',
    at: () => layout.controlFolder(run),
    doctor: async (store) => {
      await resumed(store, 1);
      await resumed(store, 3);
    },
  },
  {
    what: 'the record of the run’s name is missing',
    rule: 'R2',
    at: () => layout.runKey(run),
    doctor: (store) => store.remove(layout.namesFolder(run)),
  },
];
