// Doctored updates: the chain of states skips a step or applies one twice.
import { stepIdOf } from '../../../../src/store/records/canonical.js';
import * as layout from '../../../../src/store/record-keys.js';
import { readUpdate } from '../../../../src/store/runs/run-records.js';
import { audited, type Doctoring, edited, learned, run, update } from '../doctored-run.js';

export const updates: readonly Doctoring[] = [
  {
    what: 'an update in the middle is missing',
    rule: 'R5',
    at: () => update(2),
    doctor: (store) => store.remove(update(2)),
  },
  {
    what: 'the base record is missing',
    rule: 'R5',
    at: () => update(0),
    doctor: (store) => store.remove(update(0)),
  },
  {
    what: 'the base record names another model',
    rule: 'R5',
    ...edited(update(0), 'base', ({ identity }) => (identity.base_model = '0'.repeat(64))),
  },
  {
    what: 'an update ends at another state than the next update begins with',
    rule: 'R5',
    at: () => update(3),
    doctor: (store) => store.edit(update(2), 'update', ({ identity }) => (identity.state = '0'.repeat(64))),
  },
  {
    what: 'an update that is not the last before GRPO names reference weights for the KL term',
    rule: 'R10',
    names: 'it names weights',
    ...edited(update(learned), 'update', ({ identity }) => (identity.weights = '0'.repeat(64))),
  },
  {
    what: 'an update that applied nothing has a new state',
    rule: 'R5',
    ...edited(update(2), 'update', ({ identity }) => (identity.applied = { reason: 'not_finite' })),
  },
  {
    what: "an update's step id does not follow from its state, batch and plan",
    rule: 'R11',
    ...edited(update(2), 'update', ({ identity }) => (identity.step_id = '0'.repeat(64))),
  },
  {
    what: 'an update was applied twice',
    rule: 'R12',
    at: () => update(3),
    doctor: async (store) => {
      const first = (await readUpdate(store.store, run, 2)).identity;
      await store.edit(update(3), 'update', ({ identity }) => {
        identity.batch = first.batch;
        identity.step_id = stepIdOf(identity.previous_state, identity.batch, identity.plan);
      });
    },
  },
  {
    what: 'a step began before the step before it was committed',
    rule: 'R5',
    at: () => layout.stepFolder(run, audited.last + 2),
    doctor: (store) =>
      store.write(layout.planKey(run, audited.last + 2), store.bytes(layout.planKey(run, 2))),
  },
  {
    what: 'the base record names another run',
    rule: 'R5',
    names: 'it says run',
    ...edited(update(0), 'base', ({ identity }) => (identity.run = 'another')),
  },
  {
    what: 'an update that names another step',
    rule: 'R5',
    names: 'it says step',
    ...edited(update(learned), 'update', ({ identity }) => (identity.step += 1)),
  },
  {
    what: 'an update that was applied has the same state as before',
    rule: 'R5',
    names: 'but the state did not change',
    ...edited(
      () => update(audited.last),
      'update',
      ({ identity }) => (identity.state = identity.previous_state),
    ),
  },
  {
    what: 'an update with fewer outcomes than its plan has rollouts',
    rule: 'R11',
    names: 'the shape of its outcomes',
    ...edited(update(learned), 'update', ({ identity }) => identity.outcomes[0]?.pop()),
  },
];
