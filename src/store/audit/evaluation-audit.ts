// Checks the evaluations of a run's states: recomputes each result from its episodes, which must match the suite's tasks and must have been
// announced before they were sampled (R9).
import type { EvaluationResult, SuiteRecord } from '../../spec/records/evaluation-records.js';
import type { Digest } from '../../spec/records/parts.js';
import type { EpisodeRecord } from '../../spec/records/episode.js';
import type { AuditReport } from './audit-report.js';
import { recordDigest } from '../records/canonical.js';
import { sha256Hex } from '../../base/sha256.js';
import { roundBefore } from '../evaluations/evaluation-rounds.js';
import { inParallel } from '../../base/in-parallel.js';
import {
  evaluationEpisodeKey,
  evaluationEpisodesFolder,
  evaluationResultKey,
  evaluationsOfState,
  evaluationsRoot,
  evaluationSuiteKey,
  runEvaluationKey,
  runEvaluationsFolder,
} from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';
import { encodeRecord } from '../records/record-codec.js';
import { unannounced } from './start-audit.js';
import { listRuns, readUpdateIfAny } from '../runs/run-records.js';
import type { RunRecord } from '../../spec/records/run-records.js';

/** Counts the figures of a suite's episodes, as the run does. */
export type CountEvaluation = (
  episodes: EpisodeRecord[],
  suite: SuiteRecord,
  digest: Digest,
  state: Digest,
) => EvaluationFigures;
type EvaluationFigures = Omit<EvaluationResult, 'observed'>;

/** Sums of turns and calls may differ by rounding: they may be added in another order. */
const tolerance = 1e-9;

/** `starts`: keys of the episodes that the run's attempts have announced. Returns the results. */
export async function auditEvaluations(
  store: ObjectStore,
  states: readonly (Digest | null)[],
  count: CountEvaluation,
  starts: ReadonlySet<string>,
  report: AuditReport,
): Promise<EvaluationResult[]> {
  const audit: EvaluationsAudit = { store, states, count, starts, report };
  const results: (EvaluationResult | null)[] = [];
  for (const state of new Set(states.filter((one) => one !== null))) {
    for (const name of await store.listFolder(evaluationsOfState(state))) {
      const suite = name.replace(/\/$/, '');
      if (!/^[0-9a-f]{64}$/.test(suite)) continue;
      report.at(`evaluation of step ${states.indexOf(state)} of ${states.length - 1}`);
      results.push(await auditEvaluation(audit, state, suite));
    }
  }
  return results.filter((result) => result !== null);
}

interface EvaluationsAudit {
  store: ObjectStore;
  states: readonly (Digest | null)[];
  count: CountEvaluation;
  starts: ReadonlySet<string>;
  report: AuditReport;
}

/** Checks one evaluation. Returns its result, or null if the result or its suite is missing. */
async function auditEvaluation(
  audit: EvaluationsAudit,
  state: Digest,
  suiteDigest: Digest,
): Promise<EvaluationResult | null> {
  const { store, count, report } = audit;
  const suiteKey = evaluationSuiteKey(state, suiteDigest);
  const resultKey = evaluationResultKey(state, suiteDigest);
  // Read the result first: a running run writes it last, after everything that it depends on.
  const result = await report.read(store, resultKey, 'evaluation');
  const suite = await report.read(store, suiteKey, 'suite');
  // If the evaluation is unfinished, check the records that exist.
  if (!suite) {
    if (result) report.add('R13', suiteKey, 'it has a result, but no suite record');
    return null;
  }
  if (recordDigest(suite) !== suiteDigest) {
    report.add('R13', suiteKey, 'its digest is not the one in its key');
    return null;
  }
  const episodes = await checkEpisodes(audit, state, suiteDigest, suite, result);
  if (!result) return null;
  report.evaluations += 1;
  if (result.state !== state || result.suite !== suiteDigest) {
    report.add('R13', resultKey, 'it names another state or suite');
  }
  for (const problem of wrongFigures(result, count(episodes, suite, suiteDigest, state)))
    report.add('R25', resultKey, problem);
  return result;
}

async function checkEpisodes(
  { store, states, starts, report }: EvaluationsAudit,
  state: Digest,
  suiteDigest: Digest,
  suite: SuiteRecord,
  result: EvaluationResult | null,
): Promise<EpisodeRecord[]> {
  const rollouts = suite.tasks.flatMap((task, slot) =>
    Array.from({ length: suite.samples_per_task }, (_, sample) => ({
      task,
      slot,
      sample,
      key: evaluationEpisodeKey(state, suiteDigest, slot, sample),
    })),
  );
  const episodes = await inParallel(rollouts, ({ key }) => report.read(store, key, 'episode'));
  const expected = new Set(rollouts.map(({ key }) => key));
  for (const [index, { task, slot, sample, key }] of rollouts.entries()) {
    const episode = episodes[index];
    if (!episode) {
      if (result) report.add('R8', key, 'the episode is missing, though there is a result');
      continue;
    }
    if (episode.slot !== slot || episode.sample !== sample) {
      report.add('R8', key, `it says slot ${episode.slot}, sample ${episode.sample}`);
    }
    if (episode.plan !== suiteDigest) report.add('R8', key, 'it belongs to another suite');
    if (episode.state !== state) report.add('R8', key, `it was sampled at state ${episode.state}`);
    if (episode.task_key !== task.task_key || episode.env_key !== task.env_key) {
      report.add('R8', key, `it has task ${episode.task_key}, but the suite has ${task.task_key}`);
    }
  }
  const startedElsewhere = new Map<string, Date>();
  const taken = await takenOver(store, state, suite, episodes);
  for await (const { key, modified } of store.list(evaluationEpisodesFolder(state, suiteDigest))) {
    if (!expected.has(key)) report.add('R8', key, 'the suite has no such task');
    else if (!starts.has(key) && !taken.has(key)) startedElsewhere.set(key, modified);
  }
  const likely = states.flatMap((one, step) => (one === state ? step : []));
  for (const key of await unannounced(store, startedElsewhere, likely))
    report.add('R9', key, 'no attempt record of any run announced its start');
  return episodes.filter((episode) => episode !== null);
}

/** Keys of graded episodes that this round has copied from the round before it. */
async function takenOver(
  store: ObjectStore,
  state: Digest,
  suite: SuiteRecord,
  episodes: readonly (EpisodeRecord | null)[],
): Promise<ReadonlySet<string>> {
  const before = roundBefore(suite);
  if (before === null) return new Set();
  const digest = recordDigest(suite);
  const keys = await inParallel(episodes, async (episode) => {
    if (episode?.outcome.status !== 'graded') return [];
    const { slot, sample } = episode;
    const bytes = await store.get(evaluationEpisodeKey(state, before.digest, slot, sample));
    const same =
      bytes &&
      sha256Hex(bytes) === sha256Hex(await encodeRecord('episode', { ...episode, plan: before.digest }));
    return same ? [evaluationEpisodeKey(state, digest, slot, sample)] : [];
  });
  return new Set(keys.flat());
}

/** Figures of a result that differ from those that its episodes give. */
function wrongFigures(result: EvaluationResult, counted: EvaluationFigures): string[] {
  const [stored, given] = [result, counted].map((figures) => new Map(leavesOf(figuresOf(figures))));
  return [...new Set([...(stored?.keys() ?? []), ...(given?.keys() ?? [])])].flatMap((name) => {
    const [was, is] = [stored?.get(name), given?.get(name)];
    const isNear = typeof was === 'number' && typeof is === 'number' && Math.abs(was - is) <= tolerance;
    if (isNear || was === is) return [];
    return [`${name} is ${String(was ?? 'missing')}, but its episodes give ${String(is ?? null)}`];
  });
}

function figuresOf({ schema: _schema, state: _state, suite: _suite, ...figures }: EvaluationFigures): object {
  const { observed: _observed, ...counted } = figures as { observed?: unknown };
  return counted;
}

/** The values of a nested object by path. */
function leavesOf(value: object, prefix = ''): [path: string, leaf: unknown][] {
  return Object.entries(value).flatMap(([key, member]: [string, unknown]): [string, unknown][] =>
    typeof member === 'object' && member !== null
      ? leavesOf(member, `${prefix}${key}.`)
      : [[`${prefix}${key}`, member]],
  );
}

/**
 * `states`: the states of the run's chain, by step. An evaluation that names another run is left to that run's audit; if that run is not in
 * the store, the evaluation is listed in the report's `notClaimed`.
 */
export async function checkForeignEvaluations(
  store: ObjectStore,
  run: string,
  states: readonly (Digest | null)[],
  report: AuditReport,
): Promise<void> {
  const own = new Set(states);
  const others = (await store.listFolder(evaluationsRoot))
    .map((name) => name.replace(/\/$/, ''))
    .filter((state) => /^[0-9a-f]{64}$/.test(state) && !own.has(state));
  const runs = new Set(await listRuns(store));
  await inParallel(others, async (state) => {
    for (const name of await store.listFolder(evaluationsOfState(state))) {
      const suite = name.replace(/\/$/, '');
      if (!/^[0-9a-f]{64}$/.test(suite)) continue;
      const key = evaluationResultKey(state, suite);
      const result = await report.read(store, key, 'evaluation');
      if (result && !runs.has(result.observed.run))
        report.notClaimed.push(`${key}: it names the run ${result.observed.run}, which is not in the store`);
      if (result?.observed.run !== run) continue;
      const { step } = result.observed;
      // A running run may have committed the step after the audit read the chain.
      if (step >= states.length && (await readUpdateIfAny(store, run, step))?.identity.state === state)
        continue;
      report.add(
        'R5',
        key,
        `it says that ${run} had this state after step ${step}, but the chain has no such state`,
      );
    }
  });
}

/** `states`: the state after each committed step; null if the chain does not show it. */
export async function auditEvaluated(
  store: ObjectStore,
  { run }: RunRecord,
  states: readonly (Digest | null)[],
  report: AuditReport,
): Promise<void> {
  const folder = runEvaluationsFolder(run);
  for (const name of await store.listFolder(folder)) {
    const key = `${folder}${name}`;
    const record = await report.read(store, key, 'evaluated');
    if (!record) continue;
    const { step, suite_name, state, suite } = record;
    if (record.run !== run || runEvaluationKey(run, step, suite_name) !== key) {
      report.add('R13', key, `it says ${suite_name} of step ${step} of ${record.run}`);
      continue;
    }
    const own = states[step];
    // A running run may have committed the step after the audit read the chain.
    if (own !== undefined && own !== null && own !== state)
      report.add('R13', key, `it names state ${state}, but the run has ${own} after step ${step}`);
    if ((await store.head(evaluationResultKey(state, suite))) === null)
      report.add('R13', key, 'the evaluation that it names has no result');
  }
}
