// Changes a step's plan and makes everything that depends on it again: episodes, batch and update.
import { auditMakers } from '../../../src/activities/reports/audit-run.js';
import type { EpisodeRecord } from '../../../src/spec/records/episode.js';
import type { PlanRecord } from '../../../src/spec/records/plan.js';
import { recordDigest, stepIdOf } from '../../../src/store/records/canonical.js';
import { sha256Hex } from '../../../src/base/sha256.js';
import * as layout from '../../../src/store/record-keys.js';
import { requireRecord } from '../../../src/store/records/records.js';
import { type Doctored, plan, run, update } from './doctored-run.js';

export async function sealAgain(
  store: Doctored,
  step: number,
  change: (record: PlanRecord) => void,
): Promise<void> {
  await store.edit(plan(step), 'plan', change);
  const record = await requireRecord(store.store, plan(step), 'plan');
  const digest = recordDigest(record);
  const episodes: EpisodeRecord[][] = [];
  for (const { slot } of record.kind === 'grpo' ? record.slots : []) {
    const group: EpisodeRecord[] = [];
    for (let sample = 0; record.kind === 'grpo' && sample < record.samples_per_slot; sample++) {
      const key = layout.episodeKey(run, step, slot, sample);
      const [{ modified }] = [(await store.store.head(key)) ?? { modified: new Date() }];
      await store.edit(key, 'episode', (episode) => {
        episode.plan = digest;
      });
      store.date(key, modified);
      group.push(await requireRecord(store.store, key, 'episode'));
    }
    episodes.push(group);
  }
  const batch = await auditMakers(store.store).batch(record, episodes);
  store.write(layout.batchKey(run, step), batch);
  await store.edit(update(step), 'update', ({ identity }) => {
    identity.plan = digest;
    identity.batch = sha256Hex(batch);
    identity.step_id = stepIdOf(identity.previous_state, identity.batch, digest);
  });
}
