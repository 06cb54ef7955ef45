// A step's batch as a function of its plan and of what that names (R10). sealBatch writes it, the audit compares with it.
import type { RunData } from './run-data.js';
import { tokenizeDemonstration } from '../episode/demonstration.js';
import { groupAdvantages } from '../rl/advantages.js';
import { episodeMetrics, rewardMetrics } from '../rl/metrics.js';
import { packForest, type GroupToPack, type SampleToPack } from '../rl/packing.js';
import type { BatchIdentity, Digest, EpisodeRecord, GrpoPlan, PlanRecord, SftPlan } from '../spec/records.js';
import type { Demonstration } from '../spec/task.js';
import { encodeBatchFile, inputsDigest } from '../store/batch-file.js';
import { canonicalText, recordDigest, sha256Hex } from '../store/canonical.js';

export interface BatchSources {
  /** By slot and sample of a GRPO plan; empty for a supervised one. */
  episodes: readonly (readonly EpisodeRecord[])[];
  /** Asked for by supervised plans only. */
  data: () => Promise<RunData>;
}

/** The bytes of the batch file, and the identity in them. */
export async function buildBatch(
  plan: PlanRecord,
  { episodes, data }: BatchSources,
): Promise<{ bytes: Uint8Array; identity: BatchIdentity }> {
  const content =
    plan.kind === 'grpo' ? fromEpisodes(plan, episodes) : await fromDemonstrations(plan, await data());
  const identity: BatchIdentity = {
    schema: 'longhaul.batch/1',
    run: plan.run,
    step: plan.step,
    plan: recordDigest(plan),
    previous_state: plan.previous_state,
    inputs: content.inputs,
    mini_batches: content.groups.length,
    loss_tokens: content.groups.map(lossTokens),
    outcomes: content.outcomes,
    metrics: content.metrics,
  };
  return { bytes: encodeBatchFile(packForest(content.groups), identity), identity };
}

interface BatchContent {
  /** One list of groups for each mini-batch. */
  groups: GroupToPack[][];
  inputs: Digest;
  outcomes: (number | null)[][];
  metrics: Record<string, number>;
}

function fromEpisodes(plan: GrpoPlan, groups: BatchSources['episodes']): BatchContent {
  const outcomes = groups.map((episodes) => episodes.map(valueOf));
  const advantageEps = plan.loss.kind === 'clipped_policy' ? plan.loss.advantage_eps : 0;
  const packed = groups.map((episodes, index): GroupToPack => {
    const advantages = groupAdvantages(outcomes[index] ?? [], { eps: advantageEps, deviation: 'population' });
    // An episode whose environment never opened has no prompt; the others of its group have the same one.
    const prompted = episodes.find((episode) => episode.prompt_length > 0);
    return {
      prefixKey: plan.slots[index]?.env_key ?? null,
      prompt: prompted?.tokens.slice(0, prompted.prompt_length) ?? [],
      samples: episodes.map((episode, sample) => toSample(episode, advantages[sample] ?? null)),
    };
  });
  const episodes = groups.flat();
  return {
    groups: [packed],
    inputs: inputsDigest(episodes.map((episode) => recordDigest(episode))),
    outcomes,
    metrics: {
      ...rewardMetrics(
        plan.slots.map(({ env_key }, index) => ({ env: env_key, values: outcomes[index] ?? [] })),
      ),
      ...episodeMetrics(episodes),
    },
  };
}

function valueOf({ outcome }: EpisodeRecord): number | null {
  return outcome.status === 'graded' ? outcome.value : null;
}

/** An unknown outcome, or a group without signal, carries no loss. */
function toSample(episode: EpisodeRecord, advantage: number | null): SampleToPack {
  const targets: SampleToPack['targets'][number][] = [];
  let sampled = 0;
  for (const { start, end } of episode.turns) {
    for (let position = start; position < end; position++) {
      const oldLogprob = episode.logprobs[sampled++] ?? 0;
      if (advantage !== null)
        targets.push({ index: position - episode.prompt_length, advantage, oldLogprob });
    }
  }
  return { tokens: episode.tokens.slice(episode.prompt_length), targets };
}

async function fromDemonstrations(plan: SftPlan, data: RunData): Promise<BatchContent> {
  const lines = plan.mini_batches.flat();
  const groups: GroupToPack[][] = [];
  for (const miniBatch of plan.mini_batches) {
    const members = miniBatch.map((line) => toGroup(data, data.demonstrations[line], line, plan));
    groups.push(await Promise.all(members));
  }
  const inputs = inputsDigest(lines.map((line) => sha256Hex(canonicalText(data.demonstrations[line]))));
  return { groups, inputs, outcomes: [], metrics: {} };
}

async function toGroup(
  data: RunData,
  demonstration: Demonstration | undefined,
  line: number,
  plan: SftPlan,
): Promise<GroupToPack> {
  if (!demonstration)
    throw new Error(`the plan of step ${plan.step} names demonstration ${line + 1}, which does not exist`);
  const tools = demonstration.env_key === undefined ? null : (data.tools[demonstration.env_key] ?? null);
  const { tokens, prompt_length, spans } = await tokenizeDemonstration(
    data,
    demonstration,
    tools,
    plan.sampling,
  );
  const targets = spans.flatMap(({ start, end }) =>
    Array.from({ length: end - start }, (_, offset) => ({
      index: start + offset - prompt_length,
      advantage: 1,
      oldLogprob: 0,
    })),
  );
  return {
    prefixKey: demonstration.env_key ?? null,
    prompt: tokens.slice(0, prompt_length),
    samples: [{ tokens: tokens.slice(prompt_length), targets }],
  };
}

function lossTokens(groups: readonly GroupToPack[]): number {
  return groups.reduce(
    (sum, { samples }) => sum + samples.reduce((total, { targets }) => total + targets.length, 0),
    0,
  );
}
