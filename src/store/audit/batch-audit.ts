// Checks a step's batch against its update, its plan and its inputs, and against the same batch sealed again.
import { sha256Hex } from '../../base/sha256.js';
import { isFiltered } from '../../spec/records/batch.js';
import { groupsInBatch, type WaveRecord, withWaves } from '../../spec/records/wave.js';
import type { GrpoPlan, PlanRecord } from '../../spec/records/plan.js';
import type { Digest } from '../../spec/records/parts.js';
import type { EpisodeRecord, Outcome } from '../../spec/records/episode.js';
import type { UpdateRecord } from '../../spec/records/update.js';
import { batchDifference, decodeBatchFile, inputsDigest } from '../files/batch-file.js';
import { batchKey, datasetFileKey, datasetManifestKey, waveKey, wavesFolder } from '../record-keys.js';
import { canonicalText, recordDigest } from '../records/canonical.js';
import { readBatch } from '../runs/stored-batch.js';
import { type AuditReport, readable } from './audit-report.js';
import type { Chain } from './chain.js';
import type { RunRecord } from '../../spec/records/run-records.js';
import type { ObjectStore } from '../objects/object-store.js';

/** Reports what is wrong with the batch of a committed step (R10, R25). `episodes`: by slot and sample; null if they cannot be read. */
export async function checkBatch(
  chain: Chain,
  timeline: string,
  update: UpdateRecord,
  plan: PlanRecord | null,
  episodes: EpisodeRecord[][] | null,
): Promise<void> {
  const { store, report } = chain;
  const { identity } = update;
  const key = batchKey(timeline, identity.step);
  const bytes = await readable(report, key, () => readBatch(store, timeline, identity.step));
  if (bytes === null) return report.add('R10', key, 'the batch is missing');
  const fault = (problem: string): void => report.add('R10', key, problem);
  if (sha256Hex(bytes) !== identity.batch) return fault('its sha256 is not the one in update.json');
  const decoded = await readable(report, key, () => decodeBatchFile(bytes, key));
  if (!decoded) return;
  const batch = decoded.identity;
  if (batch.run !== timeline || batch.step !== identity.step)
    fault(`it says step ${batch.step} of ${batch.run}`);
  if (batch.plan !== identity.plan) fault('it was sealed from another plan');
  if (batch.previous_state !== identity.previous_state) fault('it was sealed for another state');
  if (canonicalText(batch.outcomes) !== canonicalText(identity.outcomes)) {
    fault('its outcomes are not those in update.json');
  }
  const learns = batch.loss_tokens.every((tokens) => tokens > 0);
  if (learns === saysNoTargets(identity.applied)) {
    fault(
      learns ? 'it has targets, but its update says that there were none' : 'it was applied without targets',
    );
  }
  if (!plan) return;
  if (batch.mini_batches !== plan.optimizer.learning_rates.length) fault('its plan has other mini-batches');
  if (plan.rebased) return checkRebuilt(chain, key, bytes, plan, []);
  const inputs =
    plan.kind === 'sft' ? await demonstrationsOf(chain, plan.mini_batches) : episodes && digestsOf(episodes);
  const sameInputs = inputs !== null && batch.inputs === inputsDigest(inputs);
  if (inputs && !sameInputs) fault('it was sealed from other inputs than those in the store');
  if (episodes && plan.kind === 'grpo' && batch.loss_tokens[0] !== targetsOf(episodes, plan)) {
    report.add('R25', key, 'its targets are not the tokens of graded samples with a learning signal');
  }
  if (!sameInputs || recordDigest(plan) !== batch.plan) return;
  await checkRebuilt(chain, key, bytes, plan, episodes ?? []);
}

function saysNoTargets(applied: UpdateRecord['identity']['applied']): boolean {
  return applied !== true && ['no_signal', 'all_filtered'].includes(applied.reason);
}

async function checkRebuilt(
  { report, make }: Chain,
  key: string,
  bytes: Uint8Array,
  plan: PlanRecord,
  episodes: EpisodeRecord[][],
): Promise<void> {
  const difference = await readable(report, key, async () =>
    batchDifference(bytes, await make.batch(plan, episodes), key),
  );
  if (!difference) return;
  report.add(
    'R10',
    key,
    `sealing step ${plan.step} again from its records gives another batch: ${difference}`,
  );
}

async function demonstrationsOf(chain: Chain, miniBatches: number[][]): Promise<Digest[] | null> {
  chain.demonstrations ??= await demonstrationDigests(chain.store, chain.record, chain.report);
  const digests = miniBatches.flat().map((line) => chain.demonstrations?.[line]);
  return digests.every((digest) => digest !== undefined) ? digests : null;
}

const digestsOf = (episodes: EpisodeRecord[][]): Digest[] =>
  episodes.flat().map((episode) => recordDigest(episode));

/**
 * Number of sampled tokens that enter the loss: the tokens of all graded samples in groups with different rewards. reinforce++ has no
 * groups: there, all graded samples count if the step has different rewards. Filtered samples have no targets.
 */
function targetsOf(groups: EpisodeRecord[][], plan: GrpoPlan): number {
  const { estimator } = plan.advantages;
  let targets = 0;
  const outcomes = groups.map((episodes) => episodes.map(({ outcome }) => valueOf(outcome)));
  const taken = groupsInBatch(plan, outcomes).map((slot) => groups[slot] ?? []);
  for (const group of estimator === 'reinforce++' ? [taken.flat()] : taken) {
    const graded = group.filter(
      ({ outcome, logprobs }) =>
        outcome.status === 'graded' && (estimator !== 'reinforce++' || logprobs.length > 0),
    );
    const values = new Set(graded.map(({ outcome }) => valueOf(outcome)));
    if (values.size < 2) continue;
    for (const episode of graded) targets += isFiltered(plan, episode) ? 0 : episode.logprobs.length;
  }
  return targets;
}

const valueOf = (outcome: Outcome): number | null => (outcome.status === 'graded' ? outcome.value : null);

/** One digest for each line of `demonstrations.jsonl`; empty, and a violation, if the data is missing or is not the run's data. */
async function demonstrationDigests(
  store: ObjectStore,
  { dataset }: RunRecord,
  report: AuditReport,
): Promise<Digest[]> {
  const key = datasetManifestKey(dataset.name, dataset.version);
  const manifest = await report.read(store, key, 'dataset');
  if (!manifest || recordDigest(manifest) !== dataset.digest) {
    report.add('R7', key, 'it is not the dataset that run.json names');
    return [];
  }
  const file = manifest.files.find(({ path }) => path === 'demonstrations.jsonl');
  const fileKey = datasetFileKey(dataset.name, dataset.version, 'demonstrations.jsonl');
  const bytes = await store.get(fileKey);
  if (bytes === null || sha256Hex(bytes) !== file?.sha256) {
    report.add('R7', fileKey, bytes === null ? 'it is missing' : 'its sha256 is not the one in its manifest');
    return [];
  }
  const lines = Buffer.from(bytes).toString('utf8').split('\n');
  return lines.filter((line) => line !== '').map((line) => sha256Hex(canonicalText(JSON.parse(line))));
}

/** Reports waves that differ from those that follow from the outcomes (R7). Returns the plan with the slots of its waves. */
export async function checkWaves(
  { store, report, make }: Chain,
  plan: GrpoPlan,
  { identity }: UpdateRecord,
): Promise<GrpoPlan> {
  const { run, step } = plan;
  const keys = new Set<string>();
  for await (const { key } of store.list(wavesFolder(run, step))) keys.add(key);
  const waves: WaveRecord[] = [];
  for (let n = 1; keys.has(waveKey(run, step, n)); n++) {
    const wave = await report.read(store, waveKey(run, step, n), 'wave');
    if (!wave) break;
    waves.push(wave);
  }
  const remade = (): Promise<WaveRecord[]> => make.waves(plan, identity.outcomes);
  const made =
    plan.dynamic_sampling === undefined
      ? []
      : ((await readable(report, wavesFolder(run, step), remade)) ?? []);
  for (const wave of made) {
    const key = waveKey(run, step, wave.wave);
    keys.delete(key);
    const stored = waves[wave.wave - 1];
    if (!stored) report.add('R7', key, 'the wave is missing');
    else if (recordDigest(stored) !== recordDigest(wave))
      report.add(
        'R7',
        key,
        `planning wave ${wave.wave} again from the outcomes before it gives another wave`,
      );
  }
  for (const key of keys) report.add('R7', key, 'the step’s outcomes ask for no such wave');
  return withWaves(plan, made);
}
