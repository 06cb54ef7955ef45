// `longhaul audit RUN`: checks a run's records; with --replay it also recomputes the updates. Exits with 1 on any violation.
import { type Command, Option } from 'commander';
import { auditRun } from '../../activities/reports/audit-run.js';
import {
  parseReplayRange,
  type ReplayAudit,
  type ReplayRange,
  replayUpdates,
} from '../../activities/reports/replay-audit.js';
import type { ChainAudit } from '../../store/audit/chain-audit.js';
import { nameOfNumerics } from '../../spec/records/numerics.js';
import type { ForkSpec, RebaseSpec } from '../../spec/run-spec.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { needsOf } from '../../store/collection/references.js';
import { readRun } from '../../store/runs/run-records.js';
import { isUnreadable } from '../../store/record-errors.js';
import { openEngineOf } from '../engine/engine-model.js';
import { withElapsedLine } from '../elapsed-line.js';
import { stepsText } from '../store/gc-command.js';
import {
  folderOption,
  openStoreOf,
  requireRun,
  type StoreFlags,
  storeOption,
  withOutput,
} from '../output.js';
import {
  paidReplay,
  replayOnServer,
  servedProofs,
  servedProofsLine,
  servedReplayText,
  type SpendFlags,
} from './served-replay.js';

interface AuditOptions extends StoreFlags, SpendFlags {
  replay?: string;
  json?: boolean;
}

export function register(program: Command): void {
  program
    .command('audit')
    .argument('<run>', 'run id, e.g. quickstart')
    .description('check every record of a run against the others; exit 1 if a record breaks a rule')
    .addOption(storeOption())
    .addOption(folderOption())
    .option(
      '--replay <A..B>',
      'recompute the updates of these steps on a fresh engine, and compare each state; on a Tinker server, compare log-probs',
    )
    .option('--spend', 'allow a replay on a Tinker server, which may cost money')
    .addOption(
      new Option('--tinker <url>', "a run's Tinker server, for --replay; its key: TINKER_API_KEY").env(
        'LONGHAUL_TINKER',
      ),
    )
    .option('--json', 'print the whole audit as JSON')
    .action(
      withOutput(async (run: string, options: AuditOptions, command: Command) => {
        const range = options.replay === undefined ? null : parseReplayRange(options.replay);
        const store = await openStoreOf(command, options);
        await requireRun(store, run);
        const isServed = (await readRun(store, run)).spec.model.served !== undefined;
        const paid = isServed && range ? await paidReplay(store, run, range, options) : null;
        const title = range ? `auditing all records of ${run} before the replay` : `auditing ${run}`;
        const [chain, family] = await withElapsedLine(title, async (at) => [
          await auditRun(store, run, at),
          await familyOf(store, run),
        ]);
        const proofs = isServed ? [servedProofsLine(chain, paid !== null)] : [];
        if (!options.json) console.log([chainText(chain), ...proofs, ...familyLines(family)].join('\n'));
        if (range && !options.json) process.stderr.write('the records are audited; now the replay\n');
        const served = paid && (await replayOnServer(store, paid));
        const replay = served
          ? { result: served, text: servedReplayText(served), agrees: served.within }
          : range && (await nativeReplay(store, run, range));
        if (replay && !options.json) console.log(replay.text);
        if (options.json) {
          const proves = isServed ? { proves: servedProofs(chain, served) } : {};
          const audit = { ...chain, ...proves, ...family };
          console.log(JSON.stringify({ ...audit, ...(replay ? { replay: replay.result } : {}) }));
        }
        if (chain.violations.length > 0 || replay?.agrees === false) process.exitCode = 1;
      }),
    );
}

/** A replay's result for `--json`, and in words. */
interface ShownReplay {
  result: object;
  text: string;
  agrees: boolean;
}

async function nativeReplay(store: ObjectStore, run: string, range: ReplayRange): Promise<ShownReplay> {
  const result = await replayOnFreshEngine(store, run, range);
  return { result, text: replayText(result), agrees: result.equal };
}

/**
 * The run's parent (`lineage`) and the runs that were forked from it. `needed`: the forks; null if a damaged record hides them, which the
 * audit names.
 */
interface Family {
  lineage: ForkSpec | null;
  needed: { step: number; by: string }[] | null;
}

async function familyOf(store: ObjectStore, run: string): Promise<Family> {
  const { lineage } = await readRun(store, run);
  const needed = await needsOf(store, run).catch((error: unknown) => {
    if (isUnreadable(error)) return null;
    throw error;
  });
  if (!lineage) return { lineage, needed };
  const { state: _state, ...fork } = lineage;
  return { lineage: fork, needed };
}

function familyLines({ lineage, needed }: Family): string[] {
  const users = (needed ?? []).map(({ step, by }) => `${by} after step ${step}`);
  return [
    ...(lineage ? [`  continues from ${lineage.run} after step ${lineage.step}`] : []),
    ...(lineage?.rebase ? [`  rebased      ${rebaseText(lineage.rebase)}`] : []),
    ...(users.length > 0 ? [`  needed by    ${users.join(', ')}`] : []),
    ...(needed === null ? ['  needed by    unknown: a record of a run or a reference cannot be read'] : []),
  ];
}

function rebaseText({ to, numerics }: RebaseSpec): string {
  return `to numerics ${nameOfNumerics(numerics)}; its parent's batches up to step ${to} were applied again`;
}

async function replayOnFreshEngine(
  store: ObjectStore,
  run: string,
  range: ReplayRange,
): Promise<ReplayAudit> {
  const engine = await openEngineOf(store, run);
  try {
    return await replayUpdates({ store, engine, log: (message) => console.error(message) }, run, range);
  } finally {
    await engine.close();
  }
}

function chainText(chain: ChainAudit): string {
  const lines = [
    `${chain.run}`,
    `  steps        ${chain.steps} with the base, ${chain.updatesApplied} updates applied`,
    `  episodes     ${chain.episodes} of steps: ${chain.unknown} unknown, ${chain.zeros} graded 0 (those of evaluations are not counted)`,
    `  evaluations  ${chain.evaluations}`,
    `  checkpoints  ${chain.checkpoints}`,
    ...collectedLines(chain),
    ...chain.resampled.map(resampledLine),
    `  final state  ${chain.finalState ?? 'none yet'}`,
    `  violations   ${chain.violations.length === 0 ? 'none' : chain.violations.length}`,
    ...chain.violations.map(({ rule, key, problem }) => `    ${rule}  ${key}: ${problem}`),
    '  not claimed',
    ...chain.notClaimed.map((what) => `    ${what}`),
  ];
  return lines.join('\n');
}

function resampledLine({ step, control, episodes }: ChainAudit['resampled'][number]): string {
  const what = episodes === 1 ? '1 episode was' : `${episodes} episodes were`;
  return `  resampled    step ${step}: ${what} set aside by control record ${control} (resample)`;
}

function collectedLines({ collected, violations }: ChainAudit): string[] {
  const { records, checkpoints, manifests, folded } = collected;
  if (records === 0) return [];
  return [
    `  collected    ${checkpoints.length} checkpoints; the episodes of ${folded} steps are in one file each (collections: ${records})`,
    ...(manifests.length > 0
      ? [
          `               manifests without data, left by late uploads: ${stepsText(manifests)}; the next longhaul gc deletes them`,
        ]
      : []),
    ...(violations.length > 0
      ? []
      : [
          '               every step can still be computed again, from an older checkpoint or the base model and the logged batches',
        ]),
  ];
}

function replayText({ steps, equal, from, to, seconds, restoreSeconds }: ReplayAudit): string {
  const updates = steps.filter((step) => step.applied).length;
  const speed = seconds > 0 ? `${(updates / seconds).toFixed(1)} a second` : 'no update to compute';
  const lines = steps.map(({ step, applied, recorded, computed, seconds: took }) => {
    if (!applied) return `  step ${step}  applied nothing`;
    const verdict =
      recorded === computed
        ? `equal  ${recorded}`
        : `DIFFERS\n    recorded  ${recorded}\n    computed  ${computed}`;
    return `  step ${step}  ${took.toFixed(2)} s  ${verdict}`;
  });
  return [
    `replay of steps ${from}..${to}, restored in ${restoreSeconds.toFixed(2)} s`,
    ...lines,
    `  ${equal ? 'all equal' : 'the records and this engine disagree'}: ${updates} updates in ${seconds.toFixed(2)} s, ${speed}`,
  ].join('\n');
}
