// Builds a step's batch from its plan and the records that the plan names, and from nothing else (R10). sealBatch stores the batch; the
// audit compares it with the stored one.
import type { RunData } from '../../data/run-data.js';
import { tokenizeDemonstration } from '../../episode/demonstration.js';
import { stepAdvantages } from '../../rl/advantages.js';
import { batchRewardMetrics, episodeMetrics } from '../../rl/metrics.js';
import { packForest, type PackedForest, type SampleToPack } from '../../rl/packing.js';
import { type BatchArrays, isFiltered } from '../../spec/records/batch.js';
import type { BatchIdentity } from '../../spec/records/update.js';
import type { Digest } from '../../spec/records/parts.js';
import type { EpisodeRecord } from '../../spec/records/episode.js';
import { groupsInBatch } from '../../spec/records/wave.js';
import { valueOf } from './step-groups.js';
import type { GrpoPlan, PlanRecord, SftPlan } from '../../spec/records/plan.js';
import type { Demonstration } from '../../spec/records/task.js';
import { encodeBatchFile, inputsDigest } from '../../store/files/batch-file.js';
import { canonicalText, recordDigest } from '../../store/records/canonical.js';
import { sha256Hex } from '../../base/sha256.js';

interface BatchSources {
  /** By slot and sample, for a GRPO plan; empty for a supervised plan. */
  episodes: readonly (readonly EpisodeRecord[])[];
  /** Called for supervised plans only. */
  data: () => Promise<RunData>;
}

/** Returns the bytes of the batch file, and the identity that they contain. */
export async function buildBatch(
  plan: PlanRecord,
  { episodes, data }: BatchSources,
): Promise<{ bytes: Uint8Array; identity: BatchIdentity }> {
  const content =
    plan.kind === 'grpo' ? fromEpisodes(plan, episodes) : await fromDemonstrations(plan, await data());
  const identity: BatchIdentity = {
    schema: 'longhaul.batch/2',
    run: plan.run,
    step: plan.step,
    plan: recordDigest(plan),
    previous_state: plan.previous_state,
    inputs: content.inputs,
    mini_batches: content.miniBatches.length,
    loss_tokens: content.miniBatches.map(lossTokens),
    outcomes: content.outcomes,
    metrics: content.metrics,
  };
  const forest = packForest(content.miniBatches);
  const arrays = plan.loss.tis_cap === undefined ? forest : withSampled(forest);
  return { bytes: encodeBatchFile(arrays, identity), identity };
}

/**
 * For truncated importance sampling, stores the sampling node's log-probs as `target_rollout_logprobs`. The old log-probs of the ratios are
 * left out: only the updating engine can compute them, for the policy before the update and with its own numerics.
 */
function withSampled({ target_old_logprobs, ...forest }: PackedForest): BatchArrays {
  return { ...forest, target_rollout_logprobs: target_old_logprobs };
}

interface BatchContent {
  /** One list of samples for each mini-batch, in (slot, sample) order. */
  miniBatches: SampleToPack[][];
  inputs: Digest;
  outcomes: (number | null)[][];
  metrics: Record<string, number>;
}

function fromEpisodes(plan: GrpoPlan, groups: BatchSources['episodes']): BatchContent {
  const outcomes = groups.map((episodes) => episodes.map(valueOf));
  const taken = groupsInBatch(plan, outcomes).map((slot) => groups[slot] ?? []);
  const advantages = stepAdvantages(
    taken.map((group) =>
      group.map((episode) => ({ reward: valueOf(episode), tokens: episode.logprobs.length })),
    ),
    plan.advantages,
  );
  const episodes = groups.flat();
  return {
    miniBatches: [
      taken.flatMap((group, place) =>
        group.map((episode, sample) =>
          toSample(episode, isFiltered(plan, episode) ? null : (advantages[place]?.[sample] ?? null)),
        ),
      ),
    ],
    inputs: inputsDigest(episodes.map((episode) => recordDigest(episode))),
    outcomes,
    metrics: {
      ...batchRewardMetrics(
        groups.map(([first], index) => ({ env: first?.env_key ?? '', values: outcomes[index] ?? [] })),
      ),
      ...episodeMetrics(episodes),
    },
  };
}

/** A null advantage gives no loss: the outcome is unknown, the group has no signal, or the episode is filtered. */
function toSample({ tokens, turns, logprobs }: EpisodeRecord, advantage: number | null): SampleToPack {
  const targets: SampleToPack['targets'][number][] = [];
  if (advantage === null) return { tokens, targets };
  for (const { start, end } of turns) {
    for (let index = start; index < end; index++)
      targets.push({ index, advantage, oldLogprob: logprobs[targets.length] ?? 0 });
  }
  return { tokens, targets };
}

async function fromDemonstrations(plan: SftPlan, data: RunData): Promise<BatchContent> {
  const lines = plan.mini_batches.flat();
  const miniBatches: SampleToPack[][] = [];
  for (const miniBatch of plan.mini_batches) {
    const members = miniBatch.map((line) => demonstrated(data, data.demonstrations[line], line, plan));
    miniBatches.push(await Promise.all(members));
  }
  const inputs = inputsDigest(lines.map((line) => sha256Hex(canonicalText(data.demonstrations[line]))));
  return { miniBatches, inputs, outcomes: [], metrics: {} };
}

async function demonstrated(
  data: RunData,
  demonstration: Demonstration | undefined,
  line: number,
  plan: SftPlan,
): Promise<SampleToPack> {
  if (!demonstration)
    throw new Error(`the plan of step ${plan.step} names demonstration ${line + 1}, which does not exist`);
  const tools = demonstration.env_key === undefined ? null : (data.tools[demonstration.env_key] ?? null);
  const { tokens, spans } = await tokenizeDemonstration(data, demonstration, tools, plan.sampling);
  const targets = spans.flatMap(({ start, end }) =>
    Array.from({ length: end - start }, (_, offset) => ({
      index: start + offset,
      advantage: 1,
      oldLogprob: 0,
    })),
  );
  return { tokens, targets };
}

function lossTokens(samples: readonly SampleToPack[]): number {
  return samples.reduce((sum, { targets }) => sum + targets.length, 0);
}
