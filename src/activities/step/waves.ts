// The waves of a step with dynamic sampling: further slots, as long as too few groups have a signal. Each wave is a function of the plan and of
// the outcomes before it, so a kill between waves changes no bit, and anybody can plan them again (R7).
import type { RunData } from '../../data/run-data.js';
import type { GrpoPlan } from '../../spec/records/plan.js';
import { hasSignal, slotsWith, type WaveRecord } from '../../spec/records/wave.js';
import { sha256Hex } from '../../base/sha256.js';
import { canonicalText, recordDigest } from '../../store/records/canonical.js';
import { drawSlots } from './draw-slots.js';

type Outcomes = readonly (readonly (number | null)[])[];
type WaveData = Pick<RunData, 'record' | 'trainTasks' | 'taskByKey'>;

/** The wave after the stored ones; null if the step needs none. `outcomes`: of all slots so far. */
export function nextWave(
  plan: GrpoPlan,
  waves: readonly WaveRecord[],
  outcomes: Outcomes,
  data: WaveData,
): WaveRecord | null {
  const { dynamic_sampling: settings, run, step, curriculum } = plan;
  if (!settings || waves.length + 1 >= settings.max_sample_batches) return null;
  const slots = slotsWith(plan, waves);
  if (outcomes.length !== slots.length)
    throw new Error(`step ${step} of ${run} has ${slots.length} slots, but outcomes of ${outcomes.length}`);
  const count = slotsNeeded(outcomes, settings.wanted, plan.slots.length);
  if (count === 0) return null;
  const drawn = drawSlots(data, {
    ...{ step, count, by: curriculum.by ?? 'template' },
    rules: {
      floor: settings.floor,
      maxShare: settings.max_share,
      weights: settings.weights,
      balanced: settings.balance === 'env',
    },
    state: { pass_rates: curriculum.pass_rates, cursors: waves.at(-1)?.cursors ?? curriculum.cursors },
    earlier: { slots, planned: plan.slots.length },
  });
  return {
    ...{ schema: 'longhaul.wave/1', run, step, wave: waves.length + 1, plan: recordDigest(plan) },
    outcomes: sha256Hex(canonicalText(outcomes)),
    ...drawn,
  };
}

/** As many slots as give the missing groups at the share of groups with signal so far, at most the plan's number; 0 if none is missing. */
function slotsNeeded(outcomes: Outcomes, wanted: number, most: number): number {
  const good = outcomes.filter(hasSignal).length;
  if (good >= wanted) return 0;
  return good === 0 ? most : Math.min(most, Math.ceil(((wanted - good) * outcomes.length) / good));
}

/** All waves of a step whose outcomes are known. */
export function wavesOf(plan: GrpoPlan, outcomes: Outcomes, data: WaveData): WaveRecord[] {
  const waves: WaveRecord[] = [];
  for (;;) {
    const played = slotsWith(plan, waves).length;
    const wave = outcomes.length > played ? nextWave(plan, waves, outcomes.slice(0, played), data) : null;
    if (!wave) return waves;
    waves.push(wave);
  }
}
