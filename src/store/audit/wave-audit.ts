// Checks the waves of a step: each is planned again from the plan and the outcomes before it.
import type { GrpoPlan } from '../../spec/records/plan.js';
import type { UpdateRecord } from '../../spec/records/update.js';
import { type WaveRecord, withWaves } from '../../spec/records/wave.js';
import { waveKey, wavesFolder } from '../record-keys.js';
import { recordDigest } from '../records/canonical.js';
import { readable } from './audit-report.js';
import type { Chain } from './chain.js';

/** Reports waves that differ from those that follow from the outcomes (R7). Returns the plan with the slots of its waves. */
export async function checkWaves(
  { store, report, make }: Chain,
  plan: GrpoPlan,
  { identity }: UpdateRecord,
): Promise<GrpoPlan> {
  const { run, step } = plan;
  const keys = new Set<string>();
  for await (const { key } of store.list(wavesFolder(run, step))) keys.add(key);
  const waves: WaveRecord[] = [];
  for (let n = 1; keys.has(waveKey(run, step, n)); n++) {
    const wave = await report.read(store, waveKey(run, step, n), 'wave');
    if (!wave) break;
    waves.push(wave);
  }
  const remade = (): Promise<WaveRecord[]> => make.waves(plan, identity.outcomes);
  const made =
    plan.dynamic_sampling === undefined
      ? []
      : ((await readable(report, wavesFolder(run, step), remade)) ?? []);
  for (const wave of made) {
    const key = waveKey(run, step, wave.wave);
    keys.delete(key);
    const stored = waves[wave.wave - 1];
    if (!stored) report.add('R7', key, 'the wave is missing');
    else if (recordDigest(stored) !== recordDigest(wave))
      report.add(
        'R7',
        key,
        `planning wave ${wave.wave} again from the outcomes before it gives another wave`,
      );
  }
  for (const key of keys) report.add('R7', key, 'the step’s outcomes ask for no such wave');
  return withWaves(plan, made);
}
