// An attempt stands still while a person quarantines a record that its batch was made from. When it continues, it must not commit that
// batch (R24).
import { expect, it } from 'vitest';
import { createNodeActivities } from '../../../src/activities/node-activities.js';
import { quarantine } from '../../../src/cli/store/quarantine-command.js';
import { batchKey, episodeKey, planKey, updateKey } from '../../../src/store/record-keys.js';
import { run } from '../fixture.js';
import { collect, harness, passed, planned, setOutcome, step, useGrpoStep } from '../step/grpo-step.js';
import { overlaid } from '../../store/overlaid-store.js';

useGrpoStep();

it.each([
  ['the plan', planKey(run, step)],
  ['an episode', episodeKey(run, step, 0, 0)],
])('a late attempt commits no batch if %s was quarantined before the batch was written', async (_, key) => {
  const { answer } = await planned();
  await collect(answer);
  await setOutcome(0, 0, passed);
  const store = overlaid(harness.store, {
    create: async (created, bytes) => {
      if (created === batchKey(run, step)) await quarantine(harness.store, key);
      return harness.store.create(created, bytes);
    },
  });
  const { updatePolicy } = createNodeActivities({ ...harness.node, store });
  const waking = harness.attempt('update', () => updatePolicy(harness.reference(answer)));
  await expect(waking).rejects.toMatchObject({ type: 'UnreadableRecord' });
  expect(await harness.store.head(updateKey(run, step))).toBeNull();
});
