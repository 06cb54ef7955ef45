// Shares the rollouts of one step among all nodes that the run holds: each plays a range of slots, and the update waits for all of them.
// The records hold what a node has finished (R9), so another node can complete the range of a lost one.
import { CancellationScope } from '@temporalio/workflow';
import type { CollectedRollouts, PlannedStep } from '../../activities/contracts.js';
import { type StepSamples, throwWhereRecordsChanged } from './blocking.js';
import type { Saving } from './checkpoint-uploads.js';
import type { InterruptibleWork } from './interruptible-work.js';
import type { NodePlacement } from './node-placement.js';
import { onEngine, type Place, stepId } from '../run-activities.js';
import type { RunProgress } from './run-progress.js';

/** The run to which the step belongs. */
interface Collecting {
  readonly owned: { run: string; owner: number };
  readonly nodes: NodePlacement;
  readonly interruptible: InterruptibleWork;
  readonly progress: RunProgress;
  readonly samples: StepSamples;
}

interface Share {
  /** `collect`, `collect-2`, …: each share is an activity with its own attempt records. */
  name: string;
  /** First slot, and the slot after the last one. */
  slots: [number, number];
  /** Node that plays the share. The first share is on the run's first node, which also saves, evaluates and updates. */
  node: string | undefined;
}

/** What one node has played in a step. */
interface Part {
  node: string;
  sampled: CollectedRollouts;
}

export interface JoinedRollouts extends CollectedRollouts {
  /** Seconds of each share's activity; the first entry is the first share. */
  calls: { node: string; seconds: number }[];
}

/**
 * Plays the rollouts on all nodes that are granted now; a node granted later helps with the next step. With `keep`, the first node's
 * activity also saves the state it samples from, because a separate activity would add six events to the history. With `wave`, they are
 * those of a wave.
 */
export function collectOnAll(
  { owned, nodes, interruptible, progress, samples }: Collecting,
  { step, plan, slots: count }: PlannedStep,
  keep: Saving | null,
  wave: { wave: number; from: number; to: number } = { wave: 0, from: 0, to: count },
): Promise<JoinedRollouts> {
  const shares = sharesOf(wave.to - wave.from, nodes.granted()).map(({ name, slots: [from, to], node }) => ({
    name: wave.wave === 0 ? name : `wave-${wave.wave}-${name}`,
    slots: [wave.from + from, wave.from + to] as [number, number],
    node,
  }));
  return collectShares(shares, (share) => {
    const { name, slots, node } = share;
    const kept = keep && share === shares[0] ? { keep: true, ...keep } : {};
    const collect = async (place: Place): Promise<Part> => {
      samples.check();
      const engine = onEngine(place, stepId(step, name), progress.summary(step, name));
      const sampled = await engine.collectRollouts({ ...owned, step, plan, slots, ...kept });
      return { node: place.node, sampled };
    };
    return interruptible.onNode(collect, throwWhereRecordsChanged, node);
  });
}

/** Contiguous ranges, the larger ones first; their sizes differ by at most one. Every share has at least one slot. */
export function sharesOf(slots: number, nodes: readonly string[]): Share[] {
  const count = Math.max(1, Math.min(nodes.length, slots));
  const startOf = (share: number): number => Math.ceil((share * slots) / count);
  return Array.from({ length: count }, (_, share) => ({
    name: share === 0 ? 'collect' : `collect-${share + 1}`,
    slots: [startOf(share), startOf(share + 1)],
    node: nodes[share],
  }));
}

/** Runs all shares together. If one share fails for good, the other shares are cancelled before its failure is thrown. */
async function collectShares(
  shares: readonly Share[],
  collect: (share: Share) => Promise<Part>,
): Promise<JoinedRollouts> {
  const [only, ...more] = shares;
  if (only && more.length === 0) return joined([await collect(only)]);
  const scope = new CancellationScope();
  return scope.run(async () => {
    const parts = shares.map((share) => collect(share));
    try {
      return joined(await Promise.all(parts));
    } catch (error) {
      scope.cancel();
      await Promise.allSettled(parts);
      throw error;
    }
  });
}

/** `seconds`: time of the slowest share. `kept`: result of the first share, because only its node saves. */
export function joined(parts: readonly Part[]): JoinedRollouts {
  const all = parts.map(({ sampled }) => sampled);
  const total = (figure: (sampled: CollectedRollouts) => number): number =>
    all.reduce((sum, sampled) => sum + figure(sampled), 0);
  const graded = total((sampled) => sampled.graded);
  const reason = all
    .filter(({ unknown_reason }) => unknown_reason !== undefined)
    .reduce<CollectedRollouts | null>(
      (most, one) => (most && most.unknown >= one.unknown ? most : one),
      null,
    );
  return {
    graded,
    unknown: total((sampled) => sampled.unknown),
    ...(reason?.unknown_reason === undefined ? {} : { unknown_reason: reason.unknown_reason }),
    mean_reward:
      graded === 0 ? null : total((sampled) => sampled.graded * (sampled.mean_reward ?? 0)) / graded,
    tokens: total((sampled) => sampled.tokens),
    seconds: Math.max(...all.map((sampled) => sampled.seconds)),
    kept: all[0]?.kept ?? null,
    calls: parts.map(({ node, sampled }) => ({ node, seconds: sampled.seconds })),
  };
}

/** The rollouts of a step and of its next wave. */
export function withWave(before: JoinedRollouts, wave: JoinedRollouts): JoinedRollouts {
  const parts = [before, wave].map((sampled) => ({ node: '', sampled }));
  return {
    ...joined(parts),
    seconds: before.seconds + wave.seconds,
    calls: [...before.calls, ...wave.calls],
  };
}

/** Rollout seconds of the other nodes. The budget counts them, and the updating node cannot measure them. */
export function playedElsewhere(sampled: JoinedRollouts | null, updating: string): number {
  const others = (sampled?.calls ?? []).filter(({ node }) => node !== updating);
  return others.reduce((sum, { seconds }) => sum + seconds, 0);
}
