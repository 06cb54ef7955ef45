// Checks a run's chain from its records alone: every link by digest, every outcome against its episode, no step twice or
// skipped, no finished episode started again (R9). Written from docs/records.md; `longhaul audit` and chaos runs use it.
import type { EpisodeRecord, GrpoPlan, UpdateRecord } from '../spec/records.js';
import { canonicalText, recordDigest, sha256Hex, stepIdOf } from './canonical.js';
import { readBatchIdentity } from './batch-file.js';
import { attemptsFolder, batchKey, episodeKey, episodesFolder, planKey } from './layout.js';
import type { ObjectStore } from './object-store.js';
import { readRecord } from './records.js';
import { lastCommittedStep, readRun, readState, readUpdateIfAny } from './run-records.js';

export interface ChainAudit {
  run: string;
  /** Committed steps, base included. */
  steps: number;
  updatesApplied: number;
  episodes: number;
  /** Graded outcomes that are 0 and unknown ones, for the count of false zeros elsewhere. */
  zeros: number;
  unknown: number;
  finalState: string | null;
  violations: Violation[];
}

export interface Violation {
  rule: 'R1' | 'R5' | 'R7' | 'R8' | 'R9' | 'R10' | 'R11' | 'R25';
  key: string;
  problem: string;
}

export async function auditChain(store: ObjectStore, run: string): Promise<ChainAudit> {
  await readRun(store, run);
  const last = await lastCommittedStep(store, run);
  const report: ChainAudit = {
    run,
    steps: last + 1,
    updatesApplied: 0,
    episodes: 0,
    zeros: 0,
    unknown: 0,
    finalState: null,
    violations: [],
  };
  if (last < 0) return report;
  let state = await readState(store, run, 0);
  for (let step = 1; step <= last; step++) state = await checkStep(store, run, step, state, report);
  report.finalState = state;
  return report;
}

async function checkStep(
  store: ObjectStore,
  run: string,
  step: number,
  state: string,
  report: ChainAudit,
): Promise<string> {
  const fault = (rule: Violation['rule'], key: string, problem: string): void => {
    report.violations.push({ rule, key, problem });
  };
  const update = await readUpdateIfAny(store, run, step);
  if (!update) {
    fault('R5', `steps/${step}`, `step ${step} was skipped: a later one is committed`);
    return state;
  }
  const { identity } = update;
  checkUpdate(identity, state, step, fault);
  if (identity.applied === true) report.updatesApplied += 1;
  const plan = await readRecord(store, planKey(run, step), 'plan');
  if (!plan) fault('R7', planKey(run, step), 'the plan is missing');
  else {
    if (recordDigest(plan) !== identity.plan)
      fault('R7', planKey(run, step), 'its digest is not the one that update.json names');
    if (plan.previous_state !== state)
      fault('R7', planKey(run, step), `it was made for state ${plan.previous_state}, not ${state}`);
  }
  await checkBatch(store, run, step, update, fault);
  if (plan?.kind === 'grpo') await checkEpisodes(store, run, plan, update, report, fault);
  await checkStarts(store, run, step, fault);
  return identity.state;
}

type Fault = (rule: Violation['rule'], key: string, problem: string) => void;

function checkUpdate(identity: UpdateRecord['identity'], state: string, step: number, fault: Fault): void {
  const key = `steps/${step}/update.json`;
  if (identity.step !== step) fault('R5', key, `it says step ${identity.step}`);
  if (identity.previous_state !== state)
    fault('R5', key, `it continues from ${identity.previous_state}, the chain is at ${state}`);
  if (identity.step_id !== stepIdOf(identity.previous_state, identity.batch, identity.plan))
    fault('R11', key, 'its step_id does not follow from its parts');
  if (identity.applied !== true && identity.state !== identity.previous_state)
    fault('R5', key, 'it was not applied, yet the state changed');
}

async function checkBatch(
  store: ObjectStore,
  run: string,
  step: number,
  update: UpdateRecord,
  fault: Fault,
): Promise<void> {
  const key = batchKey(run, step);
  const bytes = await store.get(key);
  if (bytes === null) return fault('R10', key, 'the batch is missing');
  if (sha256Hex(bytes) !== update.identity.batch)
    return fault('R10', key, 'its sha256 is not the one that update.json names');
  const batch = readBatchIdentity(bytes, key);
  if (batch.plan !== update.identity.plan) fault('R10', key, 'it was sealed from another plan');
  if (canonicalText(batch.outcomes) !== canonicalText(update.identity.outcomes))
    fault('R10', key, 'its outcomes differ from update.json');
}

async function checkEpisodes(
  store: ObjectStore,
  run: string,
  plan: GrpoPlan,
  update: UpdateRecord,
  report: ChainAudit,
  fault: Fault,
): Promise<void> {
  const digests: string[] = [];
  for (const { slot } of plan.slots) {
    for (let sample = 0; sample < plan.samples_per_slot; sample++) {
      const key = episodeKey(run, plan.step, slot, sample);
      const episode = await readRecord(store, key, 'episode');
      if (!episode) {
        fault('R8', key, 'the episode is missing');
        continue;
      }
      report.episodes += 1;
      digests.push(recordDigest(episode));
      checkEpisode(key, episode, plan, update, fault, report);
    }
  }
  const bytes = await store.get(batchKey(run, plan.step));
  if (bytes === null) return;
  if (readBatchIdentity(bytes, batchKey(run, plan.step)).inputs !== inputsDigest(digests)) {
    fault('R10', batchKey(run, plan.step), 'it was sealed from other episodes than those in the store');
  }
}

function checkEpisode(
  key: string,
  episode: EpisodeRecord,
  plan: GrpoPlan,
  update: UpdateRecord,
  fault: Fault,
  report: ChainAudit,
): void {
  if (episode.plan !== update.identity.plan) fault('R8', key, 'it belongs to another plan');
  if (episode.state !== plan.previous_state) fault('R8', key, `it was sampled at state ${episode.state}`);
  const value = episode.outcome.status === 'graded' ? episode.outcome.value : null;
  if (value === null) report.unknown += 1;
  if (value === 0) report.zeros += 1;
  const slotIndex = plan.slots.findIndex((slot) => slot.slot === episode.slot);
  if (update.identity.outcomes[slotIndex]?.[episode.sample] !== value) {
    fault('R25', key, `its outcome ${String(value)} is not the one in update.json`);
  }
}

/** A start that was announced after its episode already had a record (R9). */
async function checkStarts(store: ObjectStore, run: string, step: number, fault: Fault): Promise<void> {
  const recordedAt = new Map<string, number>();
  for await (const { key, modified } of store.list(episodesFolder(run, step)))
    recordedAt.set(key, modified.getTime());
  for await (const { key, modified } of store.list(attemptsFolder(run, step))) {
    const attempt = await readRecord(store, key, 'attempt');
    for (const start of attempt?.starts ?? []) {
      const recorded = recordedAt.get(start);
      if (recorded !== undefined && modified.getTime() > recorded) {
        fault('R9', start, `attempt ${attempt?.attempt} started it again after its record existed`);
      }
    }
  }
}

/** Digest over episodes' digests in (slot, sample) order (`BatchIdentity.inputs`). */
export function inputsDigest(digests: readonly string[]): string {
  return sha256Hex(digests.map((digest) => `${digest}\n`).join(''));
}
