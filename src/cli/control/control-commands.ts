// `longhaul pause|resume|checkpoint|stop|set RUN`: each sends one Temporal Update, as `temporal workflow update execute` would. `longhaul
// cancel RUN` cancels the workflow, as `temporal workflow cancel` does, and waits for its end.
import type { Command } from 'commander';
import type { ControlState } from '../../activities/contracts.js';
import { nearestName } from '../../base/nearest-name.js';
import { keyOf } from '../../spec/names/trainer-names.js';
import type { Hyperparameters } from '../../spec/records/control-records.js';
import { hyperparameterNames } from '../../workflows/hyperparameters.js';
import {
  checkpointNowUpdate,
  pauseNowUpdate,
  pauseUpdate,
  resumeUpdate,
  setHyperparametersUpdate,
  statusQuery,
  stopAfterUpdate,
} from '../../workflows/messages.js';
import { endsAtNextBoundary } from '../../workflows/status/run-text.js';
import { endWorkflow } from './end-workflow.js';
import { explained, goOn, whyNotOpen } from '../command-refusals.js';
import { BadInput, inFolder, storeOption, wholeNumber, withOutput } from '../output.js';
import {
  type RunHandle,
  runHandle,
  storeOfCommand,
  type TemporalFlags,
  withClient,
  withTemporalFlags,
} from '../temporal-access.js';
import { resampledText, resumeResampled } from './resume-resampled.js';

interface ControlFlags extends TemporalFlags {
  json?: boolean;
}

/** An Update is answered when its record is stored. 30 s are enough for a restart of every process on the way. */
const answerWithinMs = 30_000;

export function register(program: Command): void {
  control(program, 'pause', 'pause a run at its next step boundary')
    .option('--now', 'do not wait for the end of the step: cut off its episodes in flight')
    .action(
      withOutput(async (run: string, flags: ControlFlags & { now?: boolean }) => {
        const now = flags.now === true;
        let already = false;
        let late = false;
        const control = await send(run, flags, async (handle) => {
          const status = await handle.query(statusQuery);
          already = status.phase === 'paused';
          late = endsAtNextBoundary(status);
          return handle.executeUpdate(now ? pauseNowUpdate : pauseUpdate);
        });
        const holds = now
          ? 'pauses now: it cuts off episodes in flight, and finishes an update that is under way'
          : 'pauses at its next step boundary';
        if (late && !already && !now) {
          say(
            flags,
            control,
            `the pause comes too late: ${run} ends with the step that is under way, and has completed before it`,
          );
          return;
        }
        say(
          flags,
          control,
          `${run} ${already ? 'is paused already' : holds}; continue with: longhaul resume ${run}${inFolder(flags)}`,
        );
      }),
    );
  const resume = control(program, 'resume', 'let a paused or blocked run continue')
    .option('--resample', 'first discard what the unfinished step has sampled, so that it is sampled again')
    .addOption(storeOption());
  resume.action(
    withOutput(async (run: string, flags: ControlFlags & { resample?: boolean; store: string }) => {
      if (flags.resample) {
        const store = await storeOfCommand(resume, flags);
        const { control, resampling } = await resumeResampled(store, run, flags, answerWithinMs);
        say(flags, { ...control, resampling }, resampledText(run, resampling));
        return;
      }
      if (resume.getOptionValueSource('store') === 'cli')
        throw new BadInput('--store is for --resample: without it, resume reads no store');
      let held = true;
      const control = await send(run, flags, async (handle) => {
        const status = await handle.query(statusQuery);
        held = status.control.paused || status.blocked !== null;
        return handle.executeUpdate(resumeUpdate);
      });
      say(
        flags,
        control,
        held ? `${run} continues` : `${run} is neither paused nor blocked: it is running already`,
      );
    }),
  );
  control(program, 'checkpoint', 'upload the state of the next step boundary').action(
    withOutput(async (run: string, flags: ControlFlags) => {
      const control = await send(run, flags, (handle) => handle.executeUpdate(checkpointNowUpdate));
      const { checkpoint } = control;
      say(
        flags,
        control,
        `${run} uploads its state after step ${checkpoint}, or after a later step if that one is already over`,
      );
    }),
  );
  control(program, 'stop', 'end a run after a step, with evaluation, checkpoint and report')
    .option(
      '--step <n>',
      'last step to run; a past one is refused (default: the current step)',
      wholeNumber(),
    )
    .action(
      withOutput(async (run: string, flags: ControlFlags & { step?: number }) => {
        const control = await send(run, flags, async (handle) => {
          const step = lastStep(run, (await handle.query(statusQuery)).step, flags);
          return handle.executeUpdate(stopAfterUpdate, { args: [{ step }] });
        });
        say(
          flags,
          control,
          `${run} ends after step ${control.stopAfter}, or at the next step boundary if that step is already over`,
        );
      }),
    );
  control(program, 'set', 'set hyperparameters from the next plan on')
    .argument('<values...>', `NAME=NUMBER, for example lr=0.0001; names: ${hyperparameterNames.join(', ')}`)
    .action(
      withOutput(async (run: string, values: string[], flags: ControlFlags) => {
        const wanted = hyperparameters(values);
        const control = await send(run, flags, (handle) =>
          handle.executeUpdate(setHyperparametersUpdate, { args: [wanted] }),
        );
        say(
          flags,
          control,
          `${run}: ${values.join(' ')} from the next plan on (control record ${control.n})`,
        );
      }),
    );
  registerCancel(program);
}

function registerCancel(program: Command): void {
  withTemporalFlags(
    program
      .command('cancel')
      .argument('<run>', 'name of the run')
      .description(
        'end a run now: cut off its current step and keep all finished work; the run can be continued later',
      ),
    'writes',
  )
    .option('--wait <seconds>', 'how long to wait until its workflow has ended', wholeNumber(1), 120)
    .option('--json', 'print {run, ended} as JSON')
    .action(
      withOutput(async (run: string, flags: ControlFlags & { wait: number }) => {
        await withClient(flags, async (client) => {
          if (!(await endWorkflow(client, run, flags)))
            throw new Error(await whyNotOpen(runHandle(client, run), flags));
        });
        console.log(
          flags.json
            ? JSON.stringify({ run, ended: 'cancelled' })
            : `${run} is cancelled; continue with: ${goOn(run, flags)}`,
        );
      }),
    );
}

/**
 * The last step that a run at step `at` is to run. Throws if the wanted step is past: a digit too few would end a run of days at once.
 */
export function lastStep(run: string, at: number, flags: ControlFlags & { step?: number }): number {
  const current = Math.max(0, at);
  if (flags.step !== undefined && flags.step < current)
    throw new Error(
      `${run} is at step ${current}: step ${flags.step} is past. \`longhaul stop ${run}${inFolder(flags)}\` without --step ends it after the current step`,
    );
  return flags.step ?? current;
}

/** Parses `lr=1e-4 temperature=0.9`. The run itself checks the ranges. */
export function hyperparameters(values: readonly string[]): Hyperparameters {
  const wanted: Hyperparameters = {};
  for (const value of values) {
    const [given = '', text = ''] = value.split('=', 2);
    const name = hyperparameterNames.find((known) => known === given);
    if (name === undefined || !value.includes('=')) {
      const meant = name === undefined ? settingMeant(given) : null;
      const hint =
        meant === null
          ? `give NAME=NUMBER, NAME one of ${hyperparameterNames.join(', ')}`
          : `did you mean ${meant}=${text === '' ? 'NUMBER' : text}?`;
      throw new Error(`${JSON.stringify(value)} is not understood: ${hint}`);
    }
    if (wanted[name] !== undefined) throw new Error(`${name} is given twice: give it once`);
    const number = Number(text);
    if (text.trim() === '' || !Number.isFinite(number))
      throw new Error(`${name} must be a number, not ${JSON.stringify(text)}`);
    wanted[name] = number;
  }
  return wanted;
}

/** The setting with this path or typing error, or with this name in another trainer. */
function settingMeant(given: string): string | null {
  if (given === '') return null;
  const names: readonly string[] = hyperparameterNames;
  const own = [given, keyOf([given]) ?? ''].map((path) => path.split('.').at(-1) ?? '');
  return own.find((name) => names.includes(name)) ?? nearestName(given, names);
}

function control(program: Command, name: string, description: string): Command {
  return withTemporalFlags(
    program.command(name).argument('<run>', 'name of the run').description(description),
    'writes',
  ).option('--json', 'print the folded control state as JSON');
}

function send(
  run: string,
  flags: ControlFlags,
  update: (handle: RunHandle) => Promise<ControlState>,
): Promise<ControlState> {
  return withClient(flags, (client) => {
    const handle = runHandle(client, run);
    return explained(
      handle,
      client.withDeadline(Date.now() + answerWithinMs, () => update(handle)),
      flags,
    );
  });
}

function say(flags: ControlFlags, control: object, sentence: string): void {
  console.log(flags.json ? JSON.stringify(control) : sentence);
}
