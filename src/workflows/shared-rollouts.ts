// The rollouts of one step on all nodes that the run holds: each takes a range of slots, and the update waits for all of them.
// What a node has finished is in the records (R9): a range whose node is lost is filled by another one.
import { CancellationScope } from '@temporalio/workflow';
import type { CollectedRollouts } from '../activities/contracts.js';

export interface Share {
  /** `collect`, `collect-2`, …: each is an activity of its own, with attempt records of its own. */
  name: string;
  /** From the first to behind the last. */
  slots: [number, number];
  /** The first is the run's first, which also saves, evaluates and updates. */
  node: string | undefined;
}

/** Contiguous ranges whose sizes differ by at most one, the greater ones first; no node is left without a slot. */
export function sharesOf(slots: number, nodes: readonly string[]): Share[] {
  const count = Math.max(1, Math.min(nodes.length, slots));
  const startOf = (share: number): number => Math.ceil((share * slots) / count);
  return Array.from({ length: count }, (_, share) => ({
    name: share === 0 ? 'collect' : `collect-${share + 1}`,
    slots: [startOf(share), startOf(share + 1)],
    node: nodes[share],
  }));
}

/** All shares as one; where one fails for good, the others are cut off before its failure is thrown. */
export async function collectShares(
  shares: readonly Share[],
  collect: (share: Share) => Promise<CollectedRollouts>,
): Promise<CollectedRollouts> {
  const [only, ...more] = shares;
  if (only && more.length === 0) return collect(only);
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

/** `seconds` is of the slowest, and `kept` of the first: no other one saves. */
export function joined(parts: readonly CollectedRollouts[]): CollectedRollouts {
  const total = (figure: (part: CollectedRollouts) => number): number =>
    parts.reduce((sum, part) => sum + figure(part), 0);
  const graded = total((part) => part.graded);
  const ended = parts.flatMap(({ ended_at }) => ended_at ?? []);
  return {
    graded,
    unknown: total((part) => part.unknown),
    mean_reward: graded === 0 ? 0 : total((part) => part.graded * part.mean_reward) / graded,
    tokens: total((part) => part.tokens),
    seconds: Math.max(...parts.map((part) => part.seconds)),
    kept: parts[0]?.kept ?? null,
    ...(ended.length === parts.length ? { ended_at: Math.max(...ended) } : {}),
    ...(parts.some(({ troubled }) => troubled) ? { troubled: true } : {}),
  };
}
