// Gets the episodes of a plan or a suite: stored ones are adopted; the others are announced in an attempt record and played (R9).
import type { EpisodeRecord } from '../../spec/records/episode.js';
import type { EnvironmentSpec } from '../../spec/run-spec.js';
import { inParallel } from '../../base/in-parallel.js';
import { withFoldedSteps } from '../../store/runs/episodes.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { environmentsNow } from '../../store/runs/owners.js';
import type { EvidenceWriter } from '../attempt/attempt-evidence.js';
import type { NodeDeps } from '../node-deps.js';
import { requireEpisode } from './episode-record.js';
import { type EpisodeTerms, playRollouts, type Rollout } from './play-rollouts.js';
import type { AttemptScope } from '../../policy/attempt-scope.js';
import type { StateReader } from '../../policy/state-keeper.js';
import { span } from '../../base/spans.js';
import { stoppingPoint } from '../attempt/stopping-point.js';

interface RolloutOrder extends EpisodeTerms {
  /** The folder that holds the rollouts' records. */
  folder: string;
  rollouts: Rollout[];
  /** Who needs the state. `visitor`: a sweep, which may be on another node than the run. */
  reader: StateReader;
  /** The environments that play the rollouts. Absent: the run's environments at their current addresses. */
  environments?: readonly EnvironmentSpec[];
}

/**
 * Returns the stored record of every rollout. Existing records are adopted; the others are played at the state after `order.policyStep`.
 */
export async function completeRollouts(
  deps: NodeDeps,
  order: RolloutOrder,
  scope: AttemptScope,
  evidence: EvidenceWriter,
): Promise<EpisodeRecord[]> {
  const store = withFoldedSteps(deps.store);
  const { missing } = await look(store, order);
  if (missing.length === 0) return readAll(store, order, order.rollouts);
  await stoppingPoint('episodes-missed');
  const { data, policyStep } = order;
  const fill = async (): Promise<EpisodeRecord[]> => {
    // Look again: while this worker waited for the engine, another worker may have finished some episodes (R9).
    const begun = await announced(store, order, evidence);
    const others = order.rollouts.filter((rollout) => !begun.includes(rollout));
    if (begun.length === 0) return readAll(store, order, others);
    const environments = order.environments ?? (await environmentsNow(deps.store, data.record));
    // The engine may still hold the vocabulary of another run's tokenizer.
    if (order.sampling.stop) await deps.holder.engine.setVocabulary(data.tokenizer.bytes());
    const journals = await deps.journals.below(order.folder);
    const play = (): Promise<EpisodeRecord[]> =>
      playRollouts(deps, { ...order, store, rollouts: begun, environments, journals, evidence }, scope);
    const played = await span('episodes', play);
    return [...(await readAll(store, order, others)), ...played];
  };
  return deps.holder.withState(data.record.run, policyStep, order.reader, fill, scope);
}

/**
 * Writes an attempt record that names the rollouts to play, and returns these. A rollout that another worker finishes in the meantime is
 * left out (R9).
 */
async function announced(
  store: ObjectStore,
  order: RolloutOrder,
  evidence: EvidenceWriter,
): Promise<Rollout[]> {
  const { missing } = await look(store, order);
  await evidence.starts(missing.map(({ key }) => key));
  const { present } = await look(store, order);
  return missing.filter((rollout) => !present.includes(rollout));
}

async function look(
  store: ObjectStore,
  { folder, rollouts }: RolloutOrder,
): Promise<{ present: Rollout[]; missing: Rollout[] }> {
  await stoppingPoint('episodes-looked-for');
  const names = new Set(await store.listFolder(folder));
  const isThere = (rollout: Rollout): boolean => names.has(rollout.key.slice(folder.length));
  return { present: rollouts.filter(isThere), missing: rollouts.filter((rollout) => !isThere(rollout)) };
}

/** In the order of `rollouts`. */
async function readAll(
  store: ObjectStore,
  order: RolloutOrder,
  rollouts: readonly Rollout[],
): Promise<EpisodeRecord[]> {
  return inParallel(rollouts, ({ key }) => requireEpisode(store, key, order));
}
