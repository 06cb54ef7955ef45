// planWave: plans further slots of a step if too few of its groups have a signal.
import type { PlannedWave, StepReference } from '../contracts.js';
import type { OrchestratorDeps } from '../orchestrator-deps.js';
import { stoppingPoint } from '../attempt/stopping-point.js';
import { readStepGroups, valueOf } from './step-groups.js';
import { nextWave } from './waves.js';
import type { Digest } from '../../spec/records/parts.js';
import { slotsWith } from '../../spec/records/wave.js';
import { waveKey } from '../../store/record-keys.js';
import { recordFunction } from '../../store/records/records.js';
import { checkOwner } from '../../store/runs/owners.js';
import { readPlanOfStep } from '../../store/runs/plan-roots.js';
import { readUpdateIfAny } from '../../store/runs/run-records.js';
import { readWaves } from '../../store/runs/waves.js';

/** Call when every earlier slot has its records. The answer is empty if the step needs no further wave. */
export async function planWave(
  deps: OrchestratorDeps,
  input: StepReference & { plan: Digest; wave: number },
): Promise<PlannedWave> {
  const { store } = deps;
  const { run, step, wave: n } = input;
  await checkOwner(store, run, input.owner);
  const plan = await readPlanOfStep(store, input);
  if (plan.kind !== 'grpo') throw new Error(`step ${step} of ${run} is a ${plan.kind} step: it has no waves`);
  const waves = await readWaves(store, plan);
  const from = slotsWith(plan, waves.slice(0, n - 1)).length;
  const known = waves[n - 1];
  if (known) return { from, to: from + known.slots.length };
  if (await readUpdateIfAny(store, run, step)) return { from, to: from };
  const outcomes = await readStepGroups(store, plan, waves, valueOf);
  const wave = nextWave(plan, waves, outcomes, await deps.runs.get(run));
  if (!wave) return { from, to: from };
  await stoppingPoint('wave-built');
  await recordFunction(store, waveKey(run, step, wave.wave), 'wave', wave);
  await stoppingPoint('wave-written');
  return { from, to: from + wave.slots.length };
}
