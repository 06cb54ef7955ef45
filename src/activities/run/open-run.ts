// openRun turns a spec into a run: it creates or finds the run's records, claims ownership (R20), and folds the control records (R21).
import { refuseChangedFiles } from './changed-files.js';
import type { OpenedBudget, OpenedRun, RunOutline, WorkflowIdentity } from '../contracts.js';
import type { OrchestratorDeps } from '../orchestrator-deps.js';
import { openFork } from './fork-run.js';
import { refuseImpossibleData } from '../../data/dataset-validation.js';
import { takeUpModel } from '../../policy/model-assets.js';
import { phasesOf } from './step-settings.js';
import { takeUpDataset } from '../../data/run-dataset.js';
import { InvalidSpec } from '../../spec/invalid-spec.js';
import { limitsOf } from '../../spec/budget.js';
import type { Digest } from '../../spec/records/parts.js';
import type { RunRecord } from '../../spec/records/run-records.js';
import type { BudgetSpec, RunSpec } from '../../spec/run-spec.js';
import { usualBlockAfterSeconds } from '../../spec/trainer-schema.js';
import { parseRunSpec, withLaterSettings } from '../../spec/spec-input.js';
import { differences } from '../../store/records/canonical.js';
import { sha256Hex } from '../../base/sha256.js';
import { listCheckpoints } from '../../store/runs/checkpoints.js';
import { assetKey, ownersFolder, runKey } from '../../store/record-keys.js';
import { claimRun, readOwner } from '../../store/runs/owners.js';
import { adoptOrCreate, createFile, readRecord, readSequence } from '../../store/records/records.js';
import { foldedControl } from '../../store/runs/control-records.js';
import { claimName, lastCommittedStep, readState, readUpdates } from '../../store/runs/run-records.js';
import { spentInAll } from '../../rl/spending.js';

export async function openRun(
  deps: OrchestratorDeps,
  input: { spec: unknown; workflow: WorkflowIdentity; takeOver?: boolean },
  signal?: AbortSignal,
): Promise<OpenedRun> {
  const spec = parseRunSpec(input.spec);
  const claimant = {
    address: deps.temporalAddress,
    clusterId: await deps.clusterId(),
    ...input.workflow,
    environmentUrls: urlsOf(spec),
    ...(spec.budget ? { budget: spec.budget } : {}),
    ...(spec.tracking ? { tracking: spec.tracking } : {}),
    ...(spec.slack ? { slack: spec.slack } : {}),
  };
  const claim = (run: string): Promise<number> =>
    claimRun(deps.store, run, claimant, (holder) => deps.ownerState(holder), {
      takeOver: input.takeOver ?? false,
    });
  const { fork, ...rest } = spec;
  const run = fork ? await openFork(deps, rest, fork, claim) : await claimName(deps.store, spec.name);
  const record = await findOrCreate(deps, run, rest, input.workflow.firstExecutionRunId, signal);
  const owner = await claim(run);
  const step = await lastCommittedStep(deps.store, run);
  const state = step < 0 ? null : await readState(deps.store, run, step);
  const owners = owner === 1 ? [] : await readSequence(deps.store, ownersFolder(run), 'owner');
  // This is the chain's first claim of the run, so no earlier process worked for it.
  if (owners.at(-2)?.firstExecutionRunId !== input.workflow.firstExecutionRunId) deps.life.noteRun(run);
  const lastCheckpoint = (await listCheckpoints(deps.store, record)).at(-1) ?? null;
  const followers = followedIn(run, spec);
  return {
    outline: { ...outlineOf(record), ...(followers.length > 0 ? { followed_in: followers } : {}) },
    owner,
    position: { step, state, lastCheckpoint },
    control: await foldedControl(deps.store, run),
    ...(spec.budget || spec.model.served
      ? { budget: await openBudget(deps, record, spec.budget ?? {}, step) }
      : {}),
    ...(spec.placement ? { placement: spec.placement } : {}),
  };
}

async function openBudget(
  { store }: OrchestratorDeps,
  { run, lineage, observed }: RunRecord,
  budget: BudgetSpec,
  last: number,
): Promise<OpenedBudget> {
  const updates = await readUpdates(store, run, (lineage?.step ?? 0) + 1, last);
  const { usd_per_million } = budget;
  return {
    ...{ limits: limitsOf(budget), spent: spentInAll(run, updates), startedAt: observed.started_at },
    ...(usd_per_million ? { usd_per_million } : {}),
  };
}

async function findOrCreate(
  deps: OrchestratorDeps,
  run: string,
  spec: RunSpec,
  firstExecutionRunId: string,
  signal: AbortSignal | undefined,
): Promise<RunRecord> {
  const existing = await readRecord(deps.store, runKey(run), 'run');
  if (existing) {
    refuseOtherSpec(existing, spec);
    // A chain compares the files once: a server lists 20,000 tasks in 20 s.
    const owner = await readOwner(deps.store, run);
    if (owner?.firstExecutionRunId !== firstExecutionRunId)
      await refuseChangedFiles(deps.store, existing, spec, signal);
    return existing;
  }
  const { baseModel, tokenizer, template, format, eosTokens } = await takeUpModel(spec, signal);
  const dataset = await takeUpDataset(deps.store, spec, signal).catch((error: Error) => {
    throw error.name === 'BadDataFile'
      ? new InvalidSpec([{ path: 'data', problem: error.message, fix: '' }])
      : error;
  });
  const record: RunRecord = {
    schema: 'longhaul.run/3',
    run,
    name: spec.name,
    spec,
    seed: spec.seed,
    base_model: baseModel,
    tokenizer: await storeAsset(deps, tokenizer),
    chat_template: await storeAsset(deps, template),
    tool_parser: format.id,
    ...(eosTokens.length === 0 ? {} : { eos_tokens: eosTokens }),
    dataset,
    lineage: null,
    observed: { started_at: new Date().toISOString() },
  };
  await refuseImpossibleData(deps.datasets, record);
  const { record: stored } = await adoptOrCreate(deps.store, runKey(run), 'run', record);
  refuseOtherSpec(stored, spec);
  return stored;
}

function refuseOtherSpec(stored: RunRecord, spec: RunSpec): void {
  refuseDifference(stored.run, stored.spec, spec);
}

/**
 * Throws `InvalidSpec` if the specs differ. These may differ: file paths (`refuseChangedFiles` compares the files' contents instead),
 * server addresses, budget, followers (the newest owner record holds all three), and placement, which does not affect results. Settings
 * that are newer than the stored spec count with their default values.
 */
export function refuseDifference(run: string, stored: RunSpec, spec: RunSpec): void {
  const found = differences(comparable(withLaterSettings(stored)), comparable(spec));
  if (found.length === 0) return;
  throw new InvalidSpec([
    {
      path: 'name',
      problem: `run "${run}" exists with another spec:\n${found.map((line) => `    ${line}`).join('\n')}`,
      fix: fixOfDifference(run, stored, spec),
    },
  ]);
}

function fixOfDifference(run: string, stored: RunSpec, spec: RunSpec): string {
  const [before, wanted] = [stored.trainer.max_training_steps, spec.trainer.max_training_steps];
  const further =
    wanted > before
      ? `to train it further, fork it: longhaul fork ${run} --name NEW --set max_training_steps=${wanted}; `
      : '';
  return (
    `${further}to continue it unchanged: longhaul train --run ${run}; ` +
    `to change a hyperparameter while it runs: longhaul set ${run} lr=…; or choose a new name`
  );
}

function urlsOf({ environments }: RunSpec): Record<string, string | null> {
  return Object.fromEntries(environments.map(({ env_key, url }) => [env_key, url ?? null]));
}

function comparable(spec: RunSpec): unknown {
  const { tokenizer: _tokenizer, chat_template: _template, path: _path, ...model } = spec.model;
  const { tasks: _tasks, demonstrations: _demonstrations, ...data } = spec.data;
  const environments = spec.environments.map(({ url: _url, ...environment }) => environment);
  // The run's lineage already records its fork, so a later start may leave `fork` out of its spec.
  const {
    fork: _fork,
    budget: _budget,
    placement: _placement,
    tracking: _tracking,
    slack: _slack,
    ...rest
  } = spec;
  return { ...rest, model, data, environments };
}

async function storeAsset(deps: OrchestratorDeps, text: string): Promise<Digest> {
  const bytes = Buffer.from(text);
  return (await createFile(deps.store, assetKey(sha256Hex(bytes)), bytes)).sha256;
}

function outlineOf(record: RunRecord): RunOutline {
  const { spec } = record;
  return {
    run: record.run,
    name: record.name,
    project: spec.project,
    model: spec.model.name,
    phases: phasesOf(spec),
    ...(record.lineage ? { lineage: { run: record.lineage.run, step: record.lineage.step } } : {}),
    ckpt_interval: spec.trainer.ckpt_interval,
    eval_interval: spec.trainer.eval_interval,
    target_pass_at_1: spec.trainer.target_pass_at_1,
    block_after_s: spec.trainer.block_after_s ?? usualBlockAfterSeconds,
  };
}

/**
 * Trackers and channels that follow this start. Addresses are left out: the follower knows them, because a team may run its own W&B server.
 */
function followedIn(run: string, { project, tracking, slack }: RunSpec): string[] {
  const wandb = tracking?.wandb;
  const place = wandb && [wandb.entity, wandb.project ?? project, run].filter(Boolean).join('/');
  return [
    ...(place ? [`W&B ${place}${wandb.mode === 'offline' ? ' (offline)' : ''}`] : []),
    ...(slack ? [`Slack ${slack.channel}`] : []),
  ];
}
