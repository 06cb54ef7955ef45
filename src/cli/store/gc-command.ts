// `longhaul gc RUN`: deletes checkpoints beyond the run's retention, and folds the episodes of committed steps (R23).
import { hostname } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import type { Command } from 'commander';
import { whole } from '../../report/format.js';
import { retentionInForce } from '../../store/collection/retention.js';
import type { RetentionSpec, RunSpec } from '../../spec/run-spec.js';
import {
  collect,
  type Collected,
  type CollectionOptions,
  type CollectionPlan,
  planCollection,
} from '../../store/collection/collection.js';
import { readRun } from '../../store/runs/run-records.js';
import {
  folderOption,
  openStoreOf,
  requireRun,
  type StoreFlags,
  storeOption,
  wholeNumber,
  withOutput,
  inFolder,
} from '../output.js';

interface GcOptions extends StoreFlags {
  dryRun?: boolean;
  grace: number;
  keepLast?: number;
  keepEvery?: number;
  keepBest?: number;
  json?: boolean;
}

export function register(program: Command): void {
  program
    .command('gc')
    .argument('<run>', 'run id, e.g. quickstart')
    .description(
      'delete checkpoints beyond the retention in the run’s spec, put the episodes of each committed step into one file, and compress batches',
    )
    .addOption(storeOption())
    .addOption(folderOption())
    .option('--dry-run', 'show what would be deleted, and delete nothing')
    .option(
      '--grace <seconds>',
      'pause between recording the collection and the first deletion; what a new fork or sweep refers to by then is kept',
      wholeNumber(),
      60,
    )
    .option(
      '--keep-last <n>',
      'how many of the newest checkpoints to keep (overrides the spec)',
      wholeNumber(1),
    )
    .option(
      '--keep-every <steps>',
      'keep the first checkpoint at or after each multiple of N steps; 0: none (overrides the spec)',
      wholeNumber(),
    )
    .option(
      '--keep-best <n>',
      'how many checkpoints with the best evaluations to keep; 0: none (overrides the spec)',
      wholeNumber(),
    )
    .option('--json', 'print the collection as JSON')
    .action(
      withOutput(async (run: string, options: GcOptions, command: Command) => {
        const store = await openStoreOf(command, options);
        await requireRun(store, run);
        const retention = retentionOf((await readRun(store, run)).spec, options);
        const wanted: CollectionOptions = { retention };
        const say = options.json ? () => undefined : (text: string) => console.log(text);
        if (options.dryRun) {
          const plan = await planCollection(store, run, wanted);
          say([planText(run, plan), ...leftLines(run, plan, options)].join('\n'));
          if (options.json)
            console.log(JSON.stringify({ run, ...plan, kept: Object.fromEntries(plan.kept) }));
          return;
        }
        const collected = await collect(store, run, {
          ...wanted,
          graceMs: options.grace * 1000,
          by: `pid ${process.pid} on ${hostname()}`,
          wait: (ms) => delay(ms),
          onRecorded: (n, plan) => {
            say(planText(run, plan));
            say(`recorded as collection ${n}; deleting after ${options.grace} s`);
          },
        });
        if (options.json) console.log(JSON.stringify({ run, ...collected }));
        else console.log(collectedText(run, collected, options));
      }),
    );
}

/** The spec's retention; flags replace its values. */
function retentionOf(spec: RunSpec, { keepLast, keepEvery, keepBest }: Partial<GcOptions>): RetentionSpec {
  const { keep_last, keep_every, keep_best } = retentionInForce(spec);
  return {
    keep_last: keepLast ?? keep_last,
    keep_every: keepEvery ?? keep_every,
    keep_best: keepBest ?? keep_best,
  };
}

function planText(
  run: string,
  { checkpoints, episodes, batches, evaluations, kept }: CollectionPlan,
): string {
  const byReason = new Map<string, number[]>();
  for (const [step, reasons] of [...kept].sort(([a], [b]) => b - a)) {
    const reason = reasons.join(', ');
    byReason.set(reason, [step, ...(byReason.get(reason) ?? [])]);
  }
  const stays = [...byReason].map(([reason, steps]) => `${stepsText(steps)} (${reason})`);
  return [
    run,
    `  checkpoints  ${checkpoints.length === 0 ? 'nothing to delete' : `of ${stepsText(checkpoints)} are deleted`}`,
    ...(stays.length === 0 ? [] : [`               kept: ${stays.join('; ')}`]),
    `  episodes     ${episodes.length === 0 ? 'nothing to fold: no step has its episodes in single files' : `of ${stepsText(episodes)} go into one file${episodes.length === 1 ? '' : ' each'}`}`,
    `  batches      ${batches.length === 0 ? 'nothing to compress' : `of ${stepsText(batches)} are compressed`}`,
    `  evaluations  ${evaluations.length === 0 ? 'nothing to fold' : evaluations.length === 1 ? '1 goes into one file' : `${evaluations.length} go into one file each`}`,
  ].join('\n');
}

function collectedText(run: string, collected: Collected, flags: { folder: string }): string {
  const { n, checkpoints, spared, episodes, batches, evaluations, freed } = collected;
  if (n === null)
    return [`${run}: there is nothing to collect`, ...leftLines(run, collected, flags)].join('\n');
  return [
    `${run}: collection ${n} deleted ${checkpoints.length} checkpoints, folded the episodes of ${episodes.length} steps and ${evaluations.length} evaluations, and compressed ${batches.length} batches; ` +
      `${whole(freed)} bytes were freed`,
    ...(spared.length === 0
      ? []
      : [`  kept after all, because something refers to them now: checkpoints of ${stepsText(spared)}`]),
    ...leftLines(run, collected, flags),
  ].join('\n');
}

function leftLines(run: string, { left }: Pick<CollectionPlan, 'left'>, flags: { folder: string }): string[] {
  return left.map(
    ({ step, problem }) =>
      `  skipped data of step ${step}: ${problem}; see longhaul audit ${run}${inFolder(flags)}`,
  );
}

/** Text for steps in ascending order: `steps 3–120, 130`, `steps 5–475 (every 5th)`, `step 7`. */
export function stepsText(steps: readonly number[]): string {
  const ranges: number[][] = [];
  for (const step of steps) {
    const range = ranges.at(-1);
    const [first = step, second = step] = range ?? [];
    if (range && (range.length === 1 || step - (range.at(-1) ?? step) === second - first)) range.push(step);
    // Two distant steps are not a range yet. If this step directly follows the second, the second begins a new range.
    else if (range?.length === 2 && second - first > 1 && step - second === 1)
      ranges.push([range.pop() ?? second, step]);
    else ranges.push([step]);
  }
  const texts = ranges.map((range) => {
    const [first = 0, second = first] = range;
    const stride = second - first;
    if (stride > 1 && range.length < 4) return range.join(', ');
    if (range.length === 1) return `${first}`;
    return `${first}–${range.at(-1)}${stride > 1 ? ` (every ${ordinal(stride)})` : ''}`;
  });
  return `${steps.length === 1 ? 'step' : 'steps'} ${texts.join(', ')}`;
}

function ordinal(n: number): string {
  const teens = n % 100 >= 11 && n % 100 <= 13;
  return `${n}${(teens ? undefined : { 1: 'st', 2: 'nd', 3: 'rd' }[n % 10]) ?? 'th'}`;
}
