// `longhaul fork RUN@STEP --name NEW`, `longhaul rewind NAME@STEP`, `longhaul rebase NAME`: each makes a spec with `fork` and starts its
// workflow, which writes the records (R18, R22). `--print` prints that spec as input for `temporal workflow start`.
import { type Command, InvalidArgumentError } from 'commander';
import { forkSpec, planFork, timelinesNamed } from '../../activities/run/fork-run.js';
import { engineNumerics, type EngineNumerics } from '../../spec/records/parts.js';
import { backendOf, nameOfNumerics, type Numerics, sameNumerics } from '../../spec/records/numerics.js';
import type { ForkSpec, RebaseSpec, RunSpec } from '../../spec/run-spec.js';
import { listCheckpoints } from '../../store/runs/checkpoints.js';
import { nameOfRun } from '../../store/record-keys.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { lastCommittedStep, readNumerics, readRun } from '../../store/runs/run-records.js';
import { endWorkflow } from './end-workflow.js';
import { type FollowFlags, trainAndFollow } from '../train/follow-training.js';
import { sayingThatItGoesOn } from '../interruption.js';
import { poolView } from '../pool-view.js';
import { inFolder, openExistingStore, requireRun, storeOption, wholeNumber, withOutput } from '../output.js';
import { parsePlace } from '../run-at-step.js';
import { storeOfCommand, type TemporalFlags, withClient, withTemporalFlags } from '../temporal-access.js';
import type { PoolView } from '../../workflows/messages.js';
import { parse as parseYaml } from 'yaml';
import { parseRunSpec } from '../../spec/spec-input.js';

interface ForkFlags extends FollowFlags {
  store: string;
  set: string[];
  print?: boolean;
}

type RewindFlags = ForkFlags & { wait: number };

export function register(program: Command): void {
  shared(
    program
      .command('fork')
      .argument('<run@step>', 'run id and committed step, e.g. quickstart@20; without @STEP the last one')
      .description('start a run that continues another run after one of its steps; nothing is copied')
      .requiredOption('--name <name>', 'name of the new run'),
  ).action(
    withOutput(async (from: string, flags: ForkFlags & { name: string }, command: Command) => {
      const store = await storeFor(command, flags);
      const fork = await forkFrom(store, from);
      if (flags.name === nameOfRun(fork.run))
        throw new Error(
          `--name ${flags.name} is the parent’s own name, so this would be a rewind: ` +
            `longhaul rewind ${flags.name}@${fork.step}${inFolder(flags)}; for a fork choose a new name`,
        );
      const spec = await forked(store, fork, flags);
      if (flags.print) return print(spec);
      await withClient(flags, (client) =>
        sayingThatItGoesOn(spec.name, flags, () =>
          trainAndFollow(client, spec, flags, {
            begun: `${spec.name} continues ${fork.run} after step ${fork.step}`,
            store: async () => store,
          }),
        ),
      );
    }),
  );
  shared(
    program
      .command('rewind')
      .argument('<name@step>', 'name of a run, and the step of its newest timeline to return to')
      .description(
        'end a run’s workflow and continue after an earlier step, in a new timeline of the same name',
      ),
  )
    .option(
      '--wait <seconds>',
      'how long to wait until the cancelled workflow has ended',
      wholeNumber(1),
      120,
    )
    .action(
      withOutput(async (at: string, flags: RewindFlags, command: Command) => {
        const store = await storeFor(command, flags);
        const { name, step } = parsePlace(at);
        if (step === null) throw new Error(`which step? longhaul rewind ${name}@STEP${inFolder(flags)}`);
        const run = await newestTimeline(store, name);
        const spec = await rewound(store, { run, step }, name, flags.set);
        if (flags.print) return print(spec);
        await withClient(flags, async (client) => {
          if (spec.fork) await endWorkflow(client, name, flags);
          await sayingThatItGoesOn(name, flags, () =>
            trainAndFollow(client, spec, flags, {
              begun: `${name} continues ${run} after step ${step}`,
              store: async () => store,
            }),
          );
        });
      }),
    );
  shared(
    program
      .command('rebase')
      .argument('<name>', 'name of a run whose numerics no node offers any more')
      .description(
        'end a run’s workflow and apply its logged batches with other numerics, in a new timeline of the same name',
      )
      .requiredOption(
        '--numerics <backend/version>',
        'numerics to continue with, e.g. cpu/2 (longhaul nodes shows those of each node)',
        parseNumerics,
      ),
  )
    .option(
      '--wait <seconds>',
      'how long to wait until the cancelled workflow has ended',
      wholeNumber(1),
      120,
    )
    .action(
      withOutput(
        async (name: string, flags: RewindFlags & Pick<RebaseSpec, 'numerics'>, command: Command) => {
          const store = await storeFor(command, flags);
          const run = await newestTimeline(store, name);
          const { spec, begun, from } = await rebased(store, run, name, flags);
          if (flags.print) return print(spec);
          await withClient(flags, async (client) => {
            if (from !== null) {
              refuseNeedlessRebase(name, await poolView(client), from, flags.numerics, flags);
              await endWorkflow(client, name, flags);
            }
            await sayingThatItGoesOn(name, flags, () =>
              trainAndFollow(client, spec, flags, { begun, store: async () => store }),
            );
          });
        },
      ),
    );
}

function parseNumerics(text: string): RebaseSpec['numerics'] {
  const [, name, version] = /^(.+)\/([1-9][0-9]{0,8})$/.exec(text) ?? [];
  const backend = engineNumerics.find((one) => one === name);
  if (backend !== undefined) return { backend, version: Number(version) };
  throw new InvalidArgumentError('It takes a backend and its version, as in cpu/2.');
}

/**
 * The spec that rebases from the newest stored checkpoint of the timeline. `from`: the run's current numerics; null if the newest timeline
 * already is this rebase: then at most its workflow is missing.
 */
async function rebased(
  store: ObjectStore,
  run: string,
  name: string,
  { numerics, set }: RewindFlags & Pick<RebaseSpec, 'numerics'>,
): Promise<{ spec: RunSpec; begun: string; from: Numerics | null }> {
  const record = await readRun(store, run);
  const target = nameOfNumerics(numerics);
  const inWords = (from: number, to: number): string =>
    `${name} continues with numerics ${target}: ` +
    (from < to
      ? `the logged batches of steps ${from + 1} to ${to} are applied again`
      : 'no batch needs to be applied again');
  const { spec, lineage } = record;
  if (lineage?.rebase && sameNumerics(lineage.rebase.numerics, numerics))
    return { spec: changedSpec(spec, set), begun: inWords(lineage.step, lineage.rebase.to), from: null };
  const to = await lastCommittedStep(store, run);
  if (to < 1) throw new Error(`${run} has no committed step yet: start it with a new name instead`);
  const from = await readNumerics(store, run);
  refuseEqualNumerics(run, from, numerics);
  const fork = await rebasedFrom(store, { run, step: to }, numerics);
  const next = changedSpec(await forkSpec(store, name, fork), set);
  await planFork(store, next, fork);
  return { spec: next, begun: inWords(fork.step, to), from };
}

function shared(command: Command): Command {
  return withTemporalFlags(command, 'writes')
    .addOption(storeOption())
    .option(
      '--set <name=value>',
      'change a setting, e.g. lr=1e-4 or trainer.max_training_steps=80; may be repeated',
      (value: string, before: string[]) => [...before, value],
      [],
    )
    .option('--print', 'print the spec for `temporal workflow start`, and start nothing')
    .option('--detach', 'start it and return')
    .option('--json', 'print the result as JSON');
}

async function storeFor(command: Command, flags: ForkFlags): Promise<ObjectStore> {
  return (await storeOfCommand(command, flags)) ?? openExistingStore(flags.store);
}

async function forkFrom(store: ObjectStore, from: string): Promise<ForkSpec> {
  const { name: run, step } = parsePlace(from);
  await requireRun(store, run);
  return { run, step: step ?? Math.max(0, await lastCommittedStep(store, run)) };
}

async function newestTimeline(store: ObjectStore, name: string): Promise<string> {
  const newest = (await timelinesNamed(store, name)).at(-1);
  if (newest === undefined) await requireRun(store, name);
  return newest ?? name;
}

/** The spec of a fork. With other numerics it is a rebase from the newest stored checkpoint. */
async function forked(
  store: ObjectStore,
  fork: ForkSpec,
  flags: ForkFlags & { name: string },
): Promise<RunSpec> {
  const { name, set } = flags;
  const spec = changedSpec(await forkSpec(store, name, fork), set);
  const [has, backend] = [await readNumerics(store, fork.run), backendOf(spec.model)];
  const isRebase = spec.model.served === undefined && has.backend !== backend;
  const from = isRebase ? await rebasedFrom(store, fork, await offered(backend, flags)) : fork;
  const next = isRebase ? changedSpec(await forkSpec(store, name, from), set) : spec;
  await planFork(store, next, from);
  return next;
}

async function rebasedFrom(
  store: ObjectStore,
  { run, step: to }: ForkSpec,
  numerics: RebaseSpec['numerics'],
): Promise<ForkSpec> {
  const checkpoints = await listCheckpoints(store, await readRun(store, run));
  return { run, step: checkpoints.filter((one) => one <= to).at(-1) ?? 0, rebase: { to, numerics } };
}

/** The numerics of a living node with this backend. */
async function offered(backend: EngineNumerics, flags: TemporalFlags): Promise<RebaseSpec['numerics']> {
  const { nodes } = await withClient(flags, poolView);
  const node = nodes.find(({ state, numerics }) => state === 'up' && numerics?.backend === backend);
  if (node?.numerics) return { backend, version: node.numerics.version };
  throw new Error(
    `no living node computes with numerics ${backend} (longhaul nodes${inFolder(flags)}): first start one, with ` +
      `LONGHAUL_NUMERICS=${backend} longhaul up. Nothing was changed`,
  );
}

/**
 * The spec of a rewind. If the newest timeline already is this rewind and has taken no step since, its records exist, and the spec
 * continues it.
 */
async function rewound(
  store: ObjectStore,
  fork: ForkSpec,
  name: string,
  changes: string[],
): Promise<RunSpec> {
  const { run, step } = fork;
  const { spec, lineage } = await readRun(store, run);
  const made = run !== name && lineage?.step === step && (await lastCommittedStep(store, run)) === step;
  if (made) return changedSpec(spec, changes);
  const next = changedSpec(await forkSpec(store, name, fork), changes);
  await planFork(store, next, fork);
  return next;
}

function print(spec: RunSpec): void {
  console.log(JSON.stringify(spec, null, 2));
}

/** Throws if the run already has the wanted numerics. */
export function refuseEqualNumerics(run: string, has: Numerics, wanted: Numerics): void {
  if (!sameNumerics(has, wanted)) return;
  throw new Error(`${run} has numerics ${nameOfNumerics(has)} already: there is nothing to rebase`);
}

/**
 * Throws if a living node still has the run's own numerics, or if no living node has the wanted numerics. `flags` go into the commands that
 * the error suggests.
 */
export function refuseNeedlessRebase(
  run: string,
  { nodes }: Pick<PoolView, 'nodes'>,
  has: Numerics,
  wanted: Numerics,
  flags: TemporalFlags,
): void {
  const list = `longhaul nodes${inFolder(flags)}`;
  const alive = (numerics: Numerics): string[] =>
    nodes
      .filter(({ state, numerics: offered }) => state === 'up' && offered && sameNumerics(offered, numerics))
      .map(({ id }) => id);
  const own = alive(has);
  if (own.length > 0)
    throw new Error(
      `${run} needs no rebase: it can continue with its own numerics ${nameOfNumerics(has)}, which ${own.join(', ')} ` +
        `${own.length === 1 ? 'offers' : 'offer'} (${list}). Nothing was changed`,
    );
  if (alive(wanted).length === 0)
    throw new Error(
      `no living node has numerics ${nameOfNumerics(wanted)}, so ${run} could not continue (${list}): ` +
        'first start a node worker whose engine has them. Nothing was changed',
    );
}

/** Values are YAML. Throws `InvalidSpec` if a change cannot be understood (it names the change) or the result is not a valid spec. */
function changedSpec(spec: RunSpec, changes: readonly string[]): RunSpec {
  const changed = structuredClone(spec) as unknown as Record<string, unknown>;
  for (const change of changes) {
    const at = change.indexOf('=');
    if (at < 1)
      throw new Error(`${JSON.stringify(change)} is not understood: give NAME=VALUE, for example lr=0.0001`);
    const name = change.slice(0, at);
    set(changed, pathOf(spec, name).split('.'), parseYaml(change.slice(at + 1)), change);
  }
  return parseRunSpec(changed);
}

/** Settings of the trainer and the generator need no path before them. An unknown name is taken for one of these settings. */
function pathOf(spec: RunSpec, name: string): string {
  if (name in spec || name.includes('.')) return name;
  return name in spec.generator ? `generator.${name}` : `trainer.${name}`;
}

function set(target: Record<string, unknown>, path: readonly string[], value: unknown, change: string): void {
  const [key = '', ...rest] = path;
  if (rest.length === 0) {
    target[key] = value;
    return;
  }
  const inner = Object.hasOwn(target, key) ? target[key] : undefined;
  if (typeof inner !== 'object' || inner === null)
    throw new Error(`${JSON.stringify(change)} is not understood: the spec has no section "${key}"`);
  set(inner as Record<string, unknown>, rest, value, change);
}
