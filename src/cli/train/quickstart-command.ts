// `longhaul quickstart`: runs the whole system on one machine, from nothing to a trained policy and its report.
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Command } from 'commander';
import { WorkflowFailedError } from '@temporalio/client';
import { plainTemporalConfig } from '../../workers/process/config.js';
import type { Stack } from '../../stack/stack.js';
import { connectClient } from '../../workers/temporal/temporal-connection.js';
import { targetNote } from '../../workflows/status/run-text.js';
import type { TrainingResult } from '../../workflows/run/training-run.js';
import { exampleServer, servedAt, upWithExample } from './example-server.js';
import { followRun } from './live-view.js';
import { alertLines } from '../../report/alerts.js';
import { timeSpan } from '../../report/format.js';
import type { AlertStanding } from '../../rl/alerts.js';
import { engineNumerics } from '../../spec/records/parts.js';
import { nothingGraded, type PassRate, passRateText } from '../../spec/pass-rate.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { defaultStackFolder, openExistingStore, printable, wholeNumber, withOutput } from '../output.js';
import { alertsWithin } from './run-alerts.js';
import { readSpecFile } from '../../spec/spec-input.js';
import { type StackFlags, StackStopped, whenEnding, withStack } from '../stack/stack-session.js';
import { startTraining, whyItEnded } from './start-training.js';
import { runHandle } from '../temporal-access.js';

interface QuickstartFlags extends StackFlags {
  seed: number;
  json?: boolean;
  keepOpen?: boolean;
}

/** Last line of the `--json` output. */
export interface QuickstartResult {
  run: string;
  seconds: number;
  heldOutPassAt1: { before: number | null; after: number | null };
  /** The pass rate of the interval evaluation that ended the run; null if the run ended in any other way. */
  reachedTarget: number | null;
  digest: string | null;
  report: string | null;
  tokens: number;
  tokensPerSecond: number;
}

const presets = fileURLToPath(new URL('../../../presets', import.meta.url));

export function register(program: Command): void {
  program
    .command('quickstart')
    .description('train a small tool-use policy on this machine in minutes, and write its report')
    .option('--seed <n>', 'seed of the run; another seed makes another run', wholeNumber(), 1)
    .option('--folder <folder>', 'folder for all data', defaultStackFolder)
    .option('--keep-open', 'leave the stack and the Temporal UI running afterwards, until Ctrl-C')
    .option('--json', 'last line: one JSON object with the result')
    .action(withOutput(quickstart));
}

async function quickstart(flags: QuickstartFlags): Promise<void> {
  const begun = performance.now();
  const preset = await readSpecFile(join(presets, 'quickstart.yaml'));
  // The stack's node computes with these numerics, so the run must ask for them.
  const numerics = engineNumerics.find((one) => one === process.env['LONGHAUL_NUMERICS']);
  const model = { ...preset.model, ...(numerics === undefined ? {} : { numerics }) };
  const spec = { ...preset, name: `quickstart-seed${flags.seed}`, seed: flags.seed, model };
  try {
    await withStack({ ...flags, environments: exampleServer }, say, async (stack, signal) => {
      say(`An example OpenEnv server is started at ${stack.addresses.environments}`);
      const { client, close } = await connectClient(plainTemporalConfig(stack.addresses.temporal));
      try {
        const ui = `${stack.addresses.ui}/namespaces/default/workflows/${encodeURIComponent(`train/${spec.name}`)}`;
        const done = await alreadyDone(client, spec.name);
        if (done) say(`${spec.name} is trained already; to train another: ${startOf(flags, flags.seed + 1)}`);
        else say(`Training ${spec.name}; watch it in the tab User Metadata of ${ui}`);
        const begunRun = done
          ? null
          : await startTraining(client, servedAt(spec, stack.addresses.environments ?? ''));
        if (begunRun && !begunRun.started) say(`${spec.name} continues where it stopped`);
        const handle = begunRun?.handle;
        const result =
          done ??
          (handle &&
            (await followRun(client, handle, { output: process.stderr, signal, folder: flags.folder })));
        if (!result) return;
        const store = (): Promise<ObjectStore> => openExistingStore(stack.addresses.store);
        const alerts = await alertsWithin(store, result.run, null);
        const seconds = (performance.now() - begun) / 1000;
        report(flags, stack, result, { seconds, ui, alerts, earlier: done !== null });
        if (flags.keepOpen) {
          say('The stack stays up until Ctrl-C.');
          await whenEnding(signal);
        }
      } finally {
        await close();
      }
    });
  } catch (error) {
    if (error instanceof WorkflowFailedError) throw new Error(whyItEnded(error), { cause: error });
    if (!(error instanceof StackStopped) || error.signal === null) throw error;
    if (flags.keepOpen && process.exitCode === 0) {
      say(
        `All finished work is kept. Runs that have not ended continue with: ${upWithExample(flags.folder)}`,
      );
      return;
    }
    say(`All finished work is kept. Continue with: ${startOf(flags, flags.seed)}`);
    process.exitCode = 130;
  }
}

/** The command as the README gives it: it installs what is missing, and needs no PATH. */
function startOf({ folder }: Pick<QuickstartFlags, 'folder'>, seed: number): string {
  return `npm run quickstart -- --seed ${seed} --folder ${folder}`;
}

/** The result of the run if its workflow has completed it, else null. */
async function alreadyDone(
  client: Awaited<ReturnType<typeof connectClient>>['client'],
  run: string,
): Promise<TrainingResult | null> {
  const handle = runHandle(client, run);
  try {
    const { status } = await handle.describe();
    const result = status.name === 'COMPLETED' ? await handle.result() : null;
    return result?.ended === 'completed' ? result : null;
  } catch {
    return null;
  }
}

function report(
  flags: QuickstartFlags,
  stack: Stack,
  result: TrainingResult,
  {
    seconds,
    ui,
    alerts,
    earlier,
  }: { seconds: number; ui: string; alerts: readonly AlertStanding[]; earlier: boolean },
): void {
  const { before, after, text } = heldOut(result);
  const { store } = stack.addresses;
  const where =
    result.report && store.startsWith('dir:') ? resolve(store.slice(4), result.report) : result.report;
  const tokensPerSecond = result.sampleSeconds > 0 ? result.tokens / result.sampleSeconds : 0;
  process.exitCode = 0;
  const target = targetNote(result);
  const lines = [
    `${result.run} ${result.ended} at step ${result.step}${earlier ? ', earlier' : `; this start took ${timeSpan(seconds)}`}`,
    `  held-out pass@1   ${text}`,
    ...(target ? [`  ${target}`] : []),
    `  tokens sampled    ${result.tokens.toLocaleString('en')} (${Math.round(tokensPerSecond).toLocaleString('en')} a second)`,
    `  state digest      ${result.state ?? '–'}`,
    `  report            ${where ?? '–'}`,
    ...alertLines(alerts).map((line) => `  ${printable(line)}`),
    `  Temporal UI       ${flags.keepOpen ? ui : `${upWithExample(flags.folder)}, then ${ui}`}`,
  ];
  (flags.json ? process.stderr : process.stdout).write(`${lines.join('\n')}\n`);
  if (!flags.json) return;
  const summary: QuickstartResult = {
    run: result.run,
    seconds: Math.round(seconds * 10) / 10,
    heldOutPassAt1: { before, after },
    reachedTarget: result.reachedTarget ?? null,
    digest: result.state,
    report: where,
    tokens: result.tokens,
    tokensPerSecond: Math.round(tokensPerSecond),
  };
  process.stdout.write(`${JSON.stringify(summary)}\n`);
}

/** Pass rates of the final suite before GRPO and at the end. A result of an earlier version has 0 where nothing was graded. */
export function heldOut({ evaluations }: Pick<TrainingResult, 'evaluations'>): {
  before: PassRate;
  after: PassRate;
  text: string;
} {
  const suites = evaluations.filter(({ suite }) => suite === 'final');
  const rateOf = (one: TrainingResult['evaluations'][number] | undefined): PassRate =>
    one && one.graded > 0 ? one.pass_at_1 : null;
  const last = suites.at(-1);
  const [before, after] = [rateOf(suites[0]), rateOf(last)];
  const count = last
    ? `  (${last.graded === 0 ? nothingGraded : `${last.graded} ${last.graded === 1 ? 'episode' : 'episodes'}`})`
    : '';
  return { before, after, text: `${passRateText(before)} → ${passRateText(after)}${count}` };
}

function say(message: string): void {
  process.stderr.write(`${message}\n`);
}
