// Reads the waves of a step. A wave is a function of the plan and of outcomes, so readers that depend on one make it again and compare.
import type { PlanRecord } from '../../spec/records/plan.js';
import type { WaveRecord } from '../../spec/records/wave.js';
import { waveKey, wavesFolder } from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';
import { UnreadableRecord } from '../record-errors.js';
import { recordDigest } from '../records/canonical.js';
import { requireRecord } from '../records/records.js';

/** The stored waves of a plan, in order; empty without dynamic sampling. Throws `UnreadableRecord`. */
export async function readWaves(store: ObjectStore, plan: PlanRecord): Promise<WaveRecord[]> {
  if (plan.kind !== 'grpo' || !plan.dynamic_sampling || plan.rebased) return [];
  const names = new Set(await store.listFolder(wavesFolder(plan.run, plan.step)));
  const waves: WaveRecord[] = [];
  for (let n = 1; names.has(`${n}.json`); n++) {
    const key = waveKey(plan.run, plan.step, n);
    const wave = await requireRecord(store, key, 'wave');
    if (wave.run !== plan.run || wave.step !== plan.step || wave.wave !== n)
      throw new UnreadableRecord(key, `it says wave ${wave.wave} of step ${wave.step} of ${wave.run}`);
    if (wave.plan !== recordDigest(plan))
      throw new UnreadableRecord(key, `it was planned from another plan than ${recordDigest(plan)}`);
    waves.push(wave);
  }
  return waves;
}
