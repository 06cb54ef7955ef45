// sealBatch (R10): the batch is a function of the plan and of what the store holds, read back from there.
import type { SealedBatch, StepReference } from './contracts.js';
import type { NodeDeps } from './node-deps.js';
import type { RunData } from './run-data.js';
import { currentScope } from './scope.js';
import { stoppingPoint } from './stopping-point.js';
import { tokenizeDemonstration } from '../episode/demonstration.js';
import { groupAdvantages } from '../rl/advantages.js';
import { episodeMetrics, rewardMetrics } from '../rl/metrics.js';
import { packForest, type GroupToPack, type SampleToPack } from '../rl/packing.js';
import type { BatchIdentity, Digest, EpisodeRecord, GrpoPlan, SftPlan } from '../spec/records.js';
import type { Demonstration } from '../spec/task.js';
import { encodeBatchFile, readBatchIdentity } from '../store/batch-file.js';
import { canonicalText, recordDigest, sha256Hex } from '../store/canonical.js';
import { inputsDigest } from '../store/chain-audit.js';
import { batchKey, episodeKey } from '../store/layout.js';
import { createFile, requireRecord } from '../store/records.js';
import { checkOwner, readPlan } from '../store/run-records.js';
import { UnreadableRecord } from '../store/store-errors.js';

export async function sealBatch(
  deps: NodeDeps,
  input: StepReference & { plan: Digest },
): Promise<SealedBatch> {
  const { store } = deps;
  const { run, step } = input;
  await checkOwner(store, run, input.owner);
  const key = batchKey(run, step);
  const sealed = await store.get(key);
  if (sealed) return answer(sha256Hex(sealed), sealed.length, identityFor(input, sealed, key));
  const { record: plan } = await readPlan(store, run, step, input.plan);
  const data = await deps.runs.get(run);
  const content =
    plan.kind === 'grpo' ? await fromEpisodes(deps, plan) : await fromDemonstrations(data, plan);
  const forest = packForest(content.groups);
  const identity: BatchIdentity = {
    schema: 'longhaul.batch/1',
    run,
    step,
    plan: input.plan,
    previous_state: plan.previous_state,
    inputs: content.inputs,
    mini_batches: content.groups.length,
    loss_tokens: content.groups.map(lossTokens),
    outcomes: content.outcomes,
    metrics: content.metrics,
  };
  const bytes = encodeBatchFile(forest, identity);
  await stoppingPoint('batch-built');
  currentScope().signal.throwIfAborted();
  const { sha256, size } = await createFile(store, key, bytes);
  await stoppingPoint('batch-written');
  return answer(sha256, size, identity);
}

/** A stored batch's identity. Throws `UnreadableRecord` where it was sealed for another plan or step. */
export function identityFor(
  { run, step, plan }: { run: string; step: number; plan: Digest },
  bytes: Uint8Array,
  key: string,
): BatchIdentity {
  const identity = readBatchIdentity(bytes, key);
  if (identity.plan !== plan || identity.step !== step || identity.run !== run) {
    throw new UnreadableRecord(
      key,
      `it was sealed for step ${identity.step} of ${identity.run} and plan ${identity.plan}, not for plan ${plan}`,
    );
  }
  return identity;
}

interface BatchContent {
  /** One list of groups for each mini-batch. */
  groups: GroupToPack[][];
  inputs: Digest;
  outcomes: (number | null)[][];
  metrics: Record<string, number>;
}

async function fromEpisodes(deps: NodeDeps, plan: GrpoPlan): Promise<BatchContent> {
  const samples = Array.from({ length: plan.samples_per_slot }, (_, sample) => sample);
  const groups = await Promise.all(
    plan.slots.map(({ slot }) =>
      Promise.all(
        samples.map((sample) =>
          requireRecord(deps.store, episodeKey(plan.run, plan.step, slot, sample), 'episode'),
        ),
      ),
    ),
  );
  const outcomes = groups.map((episodes) => episodes.map(valueOf));
  const advantageEps = plan.loss.kind === 'clipped_policy' ? plan.loss.advantage_eps : 0;
  const packed = groups.map((episodes, index): GroupToPack => {
    const advantages = groupAdvantages(outcomes[index] ?? [], { eps: advantageEps, deviation: 'population' });
    const [first] = episodes;
    return {
      prefixKey: plan.slots[index]?.env_key ?? null,
      prompt: first?.tokens.slice(0, first.prompt_length) ?? [],
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

async function fromDemonstrations(data: RunData, plan: SftPlan): Promise<BatchContent> {
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

function answer(batch: Digest, size: number, identity: BatchIdentity): SealedBatch {
  return { batch, size, loss_tokens: identity.loss_tokens.reduce((sum, tokens) => sum + tokens, 0) };
}
