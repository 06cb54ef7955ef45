// Doctored updates: the chain of states skips a step or applies one twice.
import { stepIdOf } from '../../../../src/store/records/canonical.js';
import * as layout from '../../../../src/store/objects/layout.js';
import { readUpdate } from '../../../../src/store/runs/run-records.js';
import { audited, type Doctoring, edited, learned, run, update } from '../doctored-run.js';

export const updates: readonly Doctoring[] = [
  {
    what: 'an update in the middle is gone',
    rule: 'R5',
    at: () => update(2),
    doctor: (store) => store.remove(update(2)),
  },
  {
    what: 'the base record is gone',
    rule: 'R5',
    at: () => update(0),
    doctor: (store) => store.remove(update(0)),
  },
  {
    what: 'the base is of another model',
    rule: 'R5',
    ...edited(update(0), 'base', ({ identity }) => (identity.base_model = '0'.repeat(64))),
  },
  {
    what: 'an update left another state than the next one found',
    rule: 'R5',
    at: () => update(3),
    doctor: (store) => store.edit(update(2), 'update', ({ identity }) => (identity.state = '0'.repeat(64))),
  },
  {
    what: 'an update that GRPO does not begin behind names weights for KL terms',
    rule: 'R10',
    names: 'it names weights',
    ...edited(update(learned), 'update', ({ identity }) => (identity.weights = '0'.repeat(64))),
  },
  {
    what: 'an update that was not applied changed the state',
    rule: 'R5',
    ...edited(update(2), 'update', ({ identity }) => (identity.applied = { reason: 'not_finite' })),
  },
  {
    what: "a step id that does not follow from its update's parts",
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
    what: 'a step was begun before the one before it was committed',
    rule: 'R5',
    at: () => layout.stepFolder(run, audited.last + 2),
    doctor: (store) =>
      store.write(layout.planKey(run, audited.last + 2), store.bytes(layout.planKey(run, 2))),
  },
  {
    what: 'a base record of another run',
    rule: 'R5',
    names: 'it says run',
    ...edited(update(0), 'base', ({ identity }) => (identity.run = 'another')),
  },
  {
    what: 'an update of another step',
    rule: 'R5',
    names: 'it says step',
    ...edited(update(learned), 'update', ({ identity }) => (identity.step += 1)),
  },
  {
    what: 'an update that was applied and changed nothing',
    rule: 'R5',
    names: 'the state is the one before',
    ...edited(
      () => update(audited.last),
      'update',
      ({ identity }) => (identity.state = identity.previous_state),
    ),
  },
  {
    what: 'an update with fewer outcomes than its plan has seats',
    rule: 'R11',
    names: 'another shape',
    ...edited(update(learned), 'update', ({ identity }) => identity.outcomes[0]?.pop()),
  },
];
