// collectRollouts: gets the terminal record of every (slot, sample) of the plan. An episode that has a record is never sampled again (R9).
import type { CollectedRollouts, KeptState, StepReference } from '../contracts.js';
import { attemptEvidence } from '../attempt/attempt-evidence.js';
import type { NodeDeps } from '../node-deps.js';
import { completeRollouts } from './complete-rollouts.js';
import type { Rollout } from './play-rollouts.js';
import { saveAmongFew } from './save-state.js';
import { currentScope } from '../attempt/scope.js';
import { stoppingPoint } from '../attempt/stopping-point.js';
import { samplingSeed } from '../../rl/random.js';
import { mostFrequentReason, reasonText } from '../../rl/grades.js';
import type { Digest } from '../../spec/records/parts.js';
import type { GrpoPlan } from '../../spec/records/plan.js';
import type { RunRecord } from '../../spec/records/run-records.js';
import { withWaves } from '../../spec/records/wave.js';
import { episodeKey, episodesFolder } from '../../store/record-keys.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { readControl } from '../../store/runs/control-records.js';
import { checkOwner } from '../../store/runs/owners.js';
import { readPlanOfStep } from '../../store/runs/plan-roots.js';
import { timesResampled } from '../../store/runs/resampling.js';
import { readUpdateIfAny } from '../../store/runs/run-records.js';
import { readWaves } from '../../store/runs/waves.js';
import type { RunData } from '../../data/run-data.js';

export async function collectRollouts(
  deps: NodeDeps,
  input: StepReference & { plan: Digest; slots: [number, number]; keep?: boolean; spare?: number },
): Promise<CollectedRollouts> {
  const { store } = deps;
  const { run, step } = input;
  const started = performance.now();
  const seconds = (): number => (performance.now() - started) / 1000;
  await stoppingPoint('rollouts-asked-for');
  await checkOwner(store, run, input.owner);
  const committed = await readUpdateIfAny(store, run, step);
  if (committed) return figures(committed.identity.outcomes.slice(...input.slots).flat(), 0, seconds(), null);
  const plan = await readPlanOfStep(store, input);
  if (plan.kind !== 'grpo')
    throw new Error(`step ${step} of ${run} is a ${plan.kind} step: it has no rollouts`);
  const data = await deps.runs.get(run);
  const scope = currentScope();
  const keeping = input.keep ? keepState(deps, { ...input, step: step - 1 }) : null;
  const filling = completeRollouts(
    deps,
    {
      data,
      plan: input.plan,
      state: plan.previous_state,
      policyStep: step - 1,
      reader: 'run',
      sampling: plan.sampling,
      random: { seed: await seedOf(store, data.record, step), domain: 'train', step },
      folder: episodesFolder(run, step),
      rollouts: rolloutsOf(withWaves(plan, await readWaves(store, plan)), data, input.slots),
    },
    scope,
    attemptEvidence(store, run, step, scope, deps.life),
  );
  const [filledAt, keptAt] = [endOf(filling), endOf(keeping)];
  // Rollouts and save must both end first: a save that is still running would collide with the save of the next attempt.
  await Promise.allSettled([filledAt, keptAt]);
  const [records, kept] = await Promise.all([filling, keeping]);
  if (keeping) deps.checkpointStalls.set(run, { step, ms: Math.max(0, (await keptAt) - (await filledAt)) });
  const values = records.map((record) => (record.outcome.status === 'graded' ? record.outcome.value : null));
  const tokens = records.reduce((sum, record) => sum + record.logprobs.length, 0);
  const reason = mostFrequentReason(records);
  return {
    ...figures(values, tokens, seconds(), kept),
    ...(reason ? { unknown_reason: reasonText(reason) } : {}),
  };
}

/** A step that was discarded gets other random numbers, so that turns in its old journals are not used again (R13). */
async function seedOf(store: ObjectStore, { run, seed }: RunRecord, step: number): Promise<number> {
  return samplingSeed(seed, timesResampled(await readControl(store, run), step));
}

/** Returns the end time on the clock of `performance.now()`. */
async function endOf(work: Promise<unknown> | null): Promise<number> {
  await work;
  return performance.now();
}

/** Saves the state. If that fails, the next checkpoint is made from the state that the engine holds then. */
async function keepState(deps: NodeDeps, input: StepReference & { spare?: number }): Promise<KeptState> {
  const started = performance.now();
  try {
    await saveAmongFew(deps, input);
    return { seconds: (performance.now() - started) / 1000 };
  } catch (error) {
    return { problem: (error as Error).message };
  }
}

function rolloutsOf(plan: GrpoPlan, data: RunData, [from, to]: [number, number]): Rollout[] {
  const rollouts: Rollout[] = [];
  for (const slot of plan.slots.slice(from, to)) {
    const task = data.taskByKey.get(slot.task_key);
    if (!task)
      throw new Error(
        `The plan of step ${plan.step} names task ${slot.task_key}, which is not in its dataset`,
      );
    for (let sample = 0; sample < plan.samples_per_slot; sample++) {
      const key = episodeKey(plan.run, plan.step, slot.slot, sample);
      rollouts.push({ key, slot: slot.slot, sample, task, seed: slot.seed });
    }
  }
  return rollouts;
}

function figures(
  values: (number | null)[],
  tokens: number,
  seconds: number,
  kept: KeptState | null,
): CollectedRollouts {
  const graded = values.filter((value) => value !== null);
  return {
    graded: graded.length,
    unknown: values.length - graded.length,
    mean_reward: graded.length === 0 ? null : graded.reduce((sum, value) => sum + value, 0) / graded.length,
    tokens,
    seconds,
    kept,
  };
}
