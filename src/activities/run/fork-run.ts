// Forks and rewinds (R22): a run that begins after a committed step of another run. A fork copies nothing: it reads the steps before it,
// with their checkpoints and batches, from its parent (R5). A rewind is a fork into the next timeline of its parent's name.
import { refuseChangedFiles } from './changed-files.js';
import { refuseImpossibleData } from '../../data/dataset-validation.js';
import type { OrchestratorDeps } from '../orchestrator-deps.js';
import { phasesOf, settingsUnder } from './step-settings.js';
import { stoppingPoint } from '../attempt/stopping-point.js';
import type { RefRecord, RunRecord } from '../../spec/records/run-records.js';
import type { ForkSpec, RunSpec } from '../../spec/run-spec.js';
import { backendOf } from '../../spec/records/numerics.js';
import { engineNumerics } from '../../spec/records/parts.js';
import { InvalidSpec, type SpecProblem } from '../../spec/invalid-spec.js';
import { withLaterSettings } from '../../spec/spec-input.js';
import { canonicalText, differences } from '../../store/records/canonical.js';
import { namesFolder, refKey, runIdOf, runKey } from '../../store/record-keys.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { adoptOrCreate, appendSequence, readSequence } from '../../store/records/records.js';
import {
  lastCommittedStep,
  readPlan,
  readRun,
  readRunIfAny,
  readState,
  readUpdateIfAny,
  timelineOf,
} from '../../store/runs/run-records.js';
import { specAtServersNow } from '../../store/runs/owners.js';
import type { ControlState } from '../../spec/records/control-records.js';
import { foldControl, readControl } from '../../store/runs/control-records.js';
import { openRunView } from '../../store/runs/quarantine.js';

/** How many committed steps an error names if the requested step is not committed. */
const nearestShown = 3;

interface PlannedFork {
  run: string;
  /** The run's number among the timelines of its name. */
  n: number;
  parent: RunRecord;
  /** The timeline that a rewind replaces; null for other forks. */
  replaces: string | null;
}

/**
 * Returns the run id for a spec that forks. If this fork exists already, that is the newest timeline of its name; otherwise the fork is
 * created. A rewind first calls `claim` on the timeline that it replaces, so that no workflow drives that timeline any more. If the process
 * is killed at any point, the same call finishes the work. Throws `InvalidSpec`, and every error of `claim`.
 */
export async function openFork(
  deps: OrchestratorDeps,
  spec: RunSpec,
  fork: ForkSpec,
  claim: (run: string) => Promise<number>,
): Promise<string> {
  const { store } = deps;
  const made = await madeAlready(store, spec.name, fork);
  if (made !== null) return made;
  const { run, n, parent, replaces } = await planFork(store, spec, fork);
  const state = await readState(store, fork.run, fork.step);
  const record: RunRecord = {
    ...parent,
    schema: 'longhaul.run/3',
    run,
    name: spec.name,
    spec,
    lineage: { ...fork, state },
    observed: { started_at: new Date().toISOString() },
  };
  await refuseImpossibleData(deps.datasets, record);
  if (replaces !== null) await claim(replaces);
  await refer(store, run, fork);
  await stoppingPoint('fork-referred');
  const stored = await adoptOrCreate(store, runKey(run), 'run', record);
  if (!isForkAt(stored.record, fork)) throw new InvalidSpec([taken(stored.record, fork)]);
  await stoppingPoint('fork-recorded');
  await appendSequence(store, namesFolder(spec.name), 'name', (next, existing) => {
    const own = existing.find((one) => one.run === run);
    if (own) return own;
    if (next === n) return { schema: 'longhaul.name/1', n, run };
    throw new InvalidSpec([
      {
        path: 'fork',
        problem: `${spec.name} was rewound in the meantime`,
        fix: 'check its newest timeline, then try again',
      },
    ]);
  });
  await stoppingPoint('fork-named');
  return run;
}

/** Newest timeline of the name if one of the name's timelines is this fork; null if the fork does not exist yet. */
export async function madeAlready(store: ObjectStore, name: string, fork: ForkSpec): Promise<string | null> {
  const timelines = await timelinesNamed(store, name);
  for (const run of timelines) {
    const record = await readRunIfAny(store, run);
    if (record && isForkAt(record, fork)) return timelines.at(-1) ?? null;
  }
  return null;
}

/** Returns the fork that `openFork` would create; writes nothing. Throws `InvalidSpec`, which lists every problem. */
export async function planFork(store: ObjectStore, spec: RunSpec, fork: ForkSpec): Promise<PlannedFork> {
  const timelines = await timelinesNamed(store, spec.name);
  const parent = await readRunIfAny(store, fork.run);
  if (!parent) {
    const problem = `there is no run "${fork.run}" in ${store.address}`;
    throw new InvalidSpec([{ path: 'fork.run', problem, fix: 'name one that `longhaul runs` lists' }]);
  }
  const last = await lastCommittedStep(store, fork.run);
  const misplaced = [...stepProblems(fork, last), ...rebaseProblems(fork, last)];
  const problems = [
    ...misplaced,
    ...changeProblems(parent, spec, fork),
    ...(misplaced.length > 0 ? [] : endProblems(spec, fork)),
  ];
  const replaces = timelines.includes(fork.run) ? (timelines.at(-1) ?? null) : null;
  if (replaces === fork.run && fork.step === last && !fork.rebase) {
    const problem = `${fork.run} is at step ${last}: there is nothing to rewind`;
    problems.push({ path: 'fork.step', problem, fix: 'name an earlier step' });
  }
  const n = replaces === null ? 1 : timelines.length + 1;
  const run = runIdOf(spec.name, n);
  const existing = await readRunIfAny(store, run);
  if (existing && !isForkAt(existing, fork)) problems.push(taken(existing, fork));
  if (problems.length > 0) throw new InvalidSpec(problems);
  await refuseChangedFiles(store, parent, spec);
  return { run, n, parent, replaces };
}

/** Run ids of the name's timelines, in order. */
export async function timelinesNamed(store: ObjectStore, name: string): Promise<string[]> {
  return (await readSequence(store, namesFolder(name), 'name')).map(({ run }) => run);
}

/**
 * Writes the reference under the run that took the step itself. It is written before anything depends on it, because garbage collection
 * reads the references there (R23).
 */
async function refer(store: ObjectStore, user: string, fork: ForkSpec): Promise<void> {
  const run = await timelineOf(store, fork.run, fork.step);
  const reference: RefRecord = {
    schema: 'longhaul.ref/1',
    run,
    user,
    kind: 'fork',
    step: fork.step,
    observed: { at: new Date().toISOString() },
  };
  const { record } = await adoptOrCreate(store, refKey(run, user), 'ref', reference);
  if (record.step === fork.step) return;
  const problem = `an earlier fork of ${run} into ${user}, after step ${record.step}, was never finished`;
  throw new InvalidSpec([
    { path: 'fork.step', problem, fix: 'finish it first with the same command, or choose a new name' },
  ]);
}

function isForkAt({ lineage }: RunRecord, { run, step, rebase }: ForkSpec): boolean {
  if (lineage?.run !== run || lineage.step !== step) return false;
  return canonicalText(lineage.rebase ?? null) === canonicalText(rebase ?? null);
}

function taken({ run, lineage }: RunRecord, fork: ForkSpec): SpecProblem {
  const is = lineage ? `a fork of ${lineage.run} after step ${lineage.step}` : 'no fork';
  return {
    path: 'name',
    problem: `run "${run}" exists and is ${is}, not one of ${fork.run} after step ${fork.step}`,
    fix: 'choose a new name; if a rewind was interrupted, finish that rewind first',
  };
}

function stepProblems({ run, step }: ForkSpec, last: number): SpecProblem[] {
  if (step <= last) return [];
  const nearest = Array.from({ length: Math.min(nearestShown, last + 1) }, (_, index) => last - index);
  return [
    {
      path: 'fork.step',
      problem: `step ${step} of ${run} is not committed`,
      fix:
        nearest.length === 0
          ? 'the run has no committed step yet: wait for its base model (step 0)'
          : `the nearest committed steps are ${nearest.reverse().join(', ')}`,
    },
  ];
}

function rebaseProblems({ run, step, rebase }: ForkSpec, last: number): SpecProblem[] {
  if (!rebase || (rebase.to >= step && rebase.to <= last)) return [];
  return [
    {
      path: 'fork.rebase.to',
      problem: `step ${rebase.to} is not one of the committed steps ${step} to ${last} of ${run}`,
      fix: `use ${last} to rebase all of them`,
    },
  ];
}

/** A fork shares its parent's steps up to `step`, so it cannot change the settings that these steps depend on. */
function changeProblems(parent: RunRecord, spec: RunSpec, { step, rebase }: ForkSpec): SpecProblem[] {
  const numerics = rebase?.numerics.backend ?? backendOf(parent.spec.model);
  const before = fixed(withLaterSettings(parent.spec), rebase?.to ?? step, numerics);
  const after = fixed(spec, rebase?.to ?? step, backendOf(spec.model));
  return differences(before, after).map((line) => ({
    path: line.slice(0, line.indexOf(' ')),
    problem: `a fork of ${parent.run} must keep its parent's value ${line.slice(line.indexOf(' ') + 1)}`,
    fix: line.startsWith('model.numerics ')
      ? 'other numerics need `fork.rebase`, which `longhaul fork --set model.numerics=…` writes'
      : 'keep the parent’s value, or start a new run instead of a fork',
  }));
}

/** Refuses a fork that would begin at or after its own last step: it would have nothing to train. */
function endProblems(spec: RunSpec, { run, step, rebase }: ForkSpec): SpecProblem[] {
  const phases = phasesOf(spec);
  const last = phases.at(-1)?.last ?? 0;
  if (last > (rebase?.to ?? step)) return [];
  const warm = phases.filter(({ kind }) => kind === 'sft').at(-1)?.last ?? 0;
  const problem = rebase
    ? `${run} has committed all of its ${last} steps: nothing is left to train with other numerics`
    : `the run ends after step ${last}, and the fork begins after step ${step}: nothing is left to train`;
  const before = warm > 0 ? ` but not the ${warm} warm-start steps before them` : '';
  const fix = `raise it: --set max_training_steps=N, where N counts all GRPO steps${before}`;
  return [{ path: 'trainer.max_training_steps', problem, fix }];
}

/** Settings that a fork cannot change. File paths are left out: the digests of the files' contents are compared instead. */
function fixed({ seed, model, warm_start }: RunSpec, step: number, numerics: string): object {
  const { tokenizer: _tokenizer, chat_template: _template, path: _path, ...rest } = model;
  return {
    seed,
    model: { ...rest, numerics },
    ...(step > 0 ? { warm_start } : {}),
  };
}

/**
 * A fork inherits neither control records nor owner records, so changed settings and the servers' last addresses must enter its spec.
 * Otherwise it would begin with its parent's first ones.
 */
export async function forkSpec(store: ObjectStore, name: string, fork: ForkSpec): Promise<RunSpec> {
  const spec = await specAtServersNow(store, await readRun(store, fork.run));
  const goesOnAfter = { run: fork.run, step: fork.rebase?.to ?? fork.step };
  const model = fork.rebase ? withNumerics(spec.model, fork.rebase.numerics.backend) : spec.model;
  return { ...spec, ...settingsUnder(spec, await controlAt(store, goesOnAfter)), model, name, fork };
}

function withNumerics({ numerics: _, ...model }: RunSpec['model'], backend: string): RunSpec['model'] {
  const named = engineNumerics.find((one) => one === backend);
  return named === undefined || named === 'cpu' ? model : { ...model, numerics: named };
}

/** The control state at the step's plan. Empty for a step of an ancestor: the run's own spec already holds those settings. */
async function controlAt(store: ObjectStore, { run, step }: ForkSpec): Promise<ControlState> {
  const identity = step > 0 ? (await readUpdateIfAny(store, run, step))?.identity : undefined;
  if (identity?.run !== run) return foldControl([]);
  const plan = await readPlan(await openRunView(store, run), identity);
  const control = await readControl(store, run);
  return foldControl(control.slice(0, plan.control));
}
