// Checks the episodes of a run's steps, folded or not (R8, R9, R23). Each rollout of the plan must have one episode, which names this plan and
// state and has the outcome that the update names. No episode may be made again after its step was folded.
import type { EpisodeRecord } from '../../spec/records/episode.js';
import type { GrpoPlan } from '../../spec/records/plan.js';
import type { RunRecord } from '../../spec/records/run-records.js';
import type { UpdateRecord } from '../../spec/records/update.js';
import { type AuditReport, readable, type Rule } from './audit-report.js';
import { recordDigest } from '../records/canonical.js';
import { type FoldedEpisodes, readFolded } from '../runs/folded-episodes.js';
import { inParallel } from '../../base/in-parallel.js';
import { episodeKey, episodesFolder, foldedEpisodesKey, planKey, updateKey } from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';
import { namedByCollections, type Sequences } from './sequence-audit.js';

/** The parts of the audit's state that this file needs. */
interface Chain {
  store: ObjectStore;
  record: RunRecord;
  report: AuditReport;
  sequences: Sequences;
}

/** Episodes by slot and sample; null if one is missing. */
export async function checkEpisodes(
  chain: Chain,
  timeline: string,
  plan: GrpoPlan,
  update: UpdateRecord,
): Promise<EpisodeRecord[][] | null> {
  const { store, report } = chain;
  const { outcomes } = update.identity;
  const shaped =
    outcomes.length === plan.slots.length && outcomes.every((row) => row.length === plan.samples_per_slot);
  if (!shaped)
    report.add('R11', updateKey(timeline, plan.step), 'the shape of its outcomes does not match the plan');
  const rollouts = plan.slots.flatMap(({ slot }, index) =>
    Array.from({ length: plan.samples_per_slot }, (_, sample) => ({
      slot: index,
      sample,
      key: episodeKey(timeline, plan.step, slot, sample),
    })),
  );
  const { folded, episodes } = await auditedEpisodes(
    chain,
    timeline,
    plan.step,
    rollouts.map(({ key }) => key),
  );
  const expected = new Set(rollouts.map(({ key }) => key));
  for (const [index, { slot }] of plan.slots.entries())
    if (slot !== index)
      report.add('R7', planKey(timeline, plan.step), `slot ${index} has the number ${slot}`);
  const groups: EpisodeRecord[][] = plan.slots.map(() => []);
  for (const [index, { key, ...rollout }] of rollouts.entries()) {
    const episode = episodes[index];
    if (episode) {
      groups[rollout.slot]?.push(episode);
      checkEpisode(report, key, episode, plan, update, rollout);
    } else report.add('R8', key, 'the episode is missing');
  }
  for (const key of folded?.keys() ?? []) {
    if (!expected.has(key))
      report.add('R8', foldedEpisodesKey(timeline, plan.step), `the plan has no ${key}`);
  }
  for await (const { key } of store.list(episodesFolder(timeline, plan.step))) {
    if (!expected.has(key)) report.add('R8', key, 'the plan has no such rollout');
    else if (folded) await checkLeftOver(chain, key, folded);
  }
  return episodes.every((episode) => episode !== null) ? groups : null;
}

/** Episodes in the order of `keys`, null for a missing one: from the folded file if it exists, else from single records. */
async function auditedEpisodes(
  { store, report, record, sequences }: Chain,
  timeline: string,
  step: number,
  keys: readonly string[],
): Promise<{ folded: FoldedEpisodes | null; episodes: (EpisodeRecord | null)[] }> {
  const key = foldedEpisodesKey(timeline, step);
  /** Whether a collection names the step. Reads the records again: a collection may have started after the audit read them. */
  const namesFold = async (): Promise<boolean> =>
    sequences.collections === null ||
    sequences.collections.episodes.has(step) ||
    (await namedByCollections(store, timeline)).episodes.has(step);
  const readFile = (): Promise<FoldedEpisodes | null> =>
    readable(report, key, () => readFolded(store, { run: timeline, step }));
  let folded = await readFile();
  const singles = folded ? [] : await inParallel(keys, (single) => report.read(store, single, 'episode'));
  // A running collection may have folded the episodes between the two reads.
  if (!folded && singles.includes(null)) folded = await readFile();
  if (!folded) return { folded, episodes: singles };
  report.collected.folded += 1;
  if (timeline === record.run && !(await namesFold()))
    report.add('R23', key, 'no collection record names this step');
  return { folded, episodes: keys.map((single) => folded.get(single)?.record ?? null) };
}

/**
 * Checks a single record beside the file of folded episodes. Its deletion was interrupted, or a delayed worker wrote it after the fold; in
 * both cases it may differ from the folded record only in its clocks.
 */
async function checkLeftOver({ store, report }: Chain, key: string, folded: FoldedEpisodes): Promise<void> {
  const record = await report.read(store, key, 'episode');
  const first = folded.get(key)?.record;
  if (record && first && recordDigest(record) !== recordDigest(first))
    report.add('R9', key, 'it was made again after its step was folded, and differs from the folded episode');
}

function checkEpisode(
  report: AuditReport,
  key: string,
  episode: EpisodeRecord,
  plan: GrpoPlan,
  update: UpdateRecord,
  rollout: { slot: number; sample: number },
): void {
  const fault = (rule: Rule, problem: string): void => report.add(rule, key, problem);
  const slot = plan.slots[rollout.slot];
  report.episode(episode);
  if (episode.slot !== rollout.slot || episode.sample !== rollout.sample) {
    fault('R8', `it says slot ${episode.slot}, sample ${episode.sample}`);
  }
  if (episode.plan !== update.identity.plan) fault('R8', 'it belongs to another plan');
  if (episode.state !== plan.previous_state) fault('R8', `it was sampled at state ${episode.state}`);
  if (episode.task_key !== slot?.task_key || episode.env_key !== slot.env_key) {
    fault('R8', `it has task ${episode.task_key}, but the plan's slot has ${slot?.task_key}`);
  }
  if (episode.turns.some((turn) => turn.policy_step !== plan.step - 1)) {
    fault('R8', 'a turn was sampled by the policy of another step');
  }
  const value = episode.outcome.status === 'graded' ? episode.outcome.value : null;
  const recorded = update.identity.outcomes[rollout.slot]?.[rollout.sample];
  if (recorded !== value) {
    const rule = value === null || recorded === null ? 'R25' : 'R11';
    fault(rule, `its outcome is ${value ?? 'unknown'}, but update.json says ${recorded ?? 'unknown'}`);
  }
}
