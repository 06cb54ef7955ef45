// A run with real parts: a directory store, the native engine, the example server. Only Temporal is replaced: attempts run in
// its mock environment.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { MockActivityEnvironment } from '@temporalio/testing';
import { DefaultLogger } from '@temporalio/worker';
import { collectRollouts } from '../../src/activities/step/collect-rollouts.js';
import { commitBase } from '../../src/activities/step/commit-base.js';
import type { CommittedStep, OpenedRun, PlannedStep, StepReference } from '../../src/activities/contracts.js';
import { DatasetCache } from '../../src/data/dataset-cache.js';
import { NewestEntries } from '../../src/base/newest-entries.js';
import type { NodeDeps } from '../../src/activities/node-deps.js';
import { openRun } from '../../src/activities/run/open-run.js';
import type { OpenedDeps } from '../../src/activities/orchestrator-deps.js';
import { planStep } from '../../src/activities/step/plan-step.js';
import { type NativePolicyHolder, nativePolicyHolder } from '../../src/policy/native-state-keeper.js';
import { ProcessLife } from '../../src/activities/attempt/process-life.js';
import { RunDataCache } from '../../src/data/run-data.js';
import { updatePolicy } from '../../src/activities/step/update-policy.js';
import type { FileEngine } from '../../src/engine/file-engine.js';
import { createNativeEngine, type NativeEngine } from '../../src/engine/native/native-engine.js';
import { JournalFolder } from '../../src/episode/journal-folder.js';
import { generateDemonstrations, generateTasks } from '../../examples/apps/generate.js';
import { servedApps, faultsOfApps } from '../../examples/apps/server/served-apps.js';
import {
  createEnvironmentServer,
  type EnvironmentServer,
} from '../../examples/apps/server/environment-server.js';
import type { EnvironmentSpec } from '../../src/spec/run-spec.js';
import type { RecordKind, RecordTypes } from '../../src/spec/records/record-kinds.js';
import type { Task } from '../../src/spec/records/task.js';
import type { OpenedStore } from '../../src/store/runs/episodes.js';
import type { ObjectStore } from '../../src/store/objects/object-store.js';
import { openStore } from '../../src/store/open-store.js';
import { encodeRecord } from '../../src/store/records/record-codec.js';
import { requireRecord } from '../../src/store/records/records.js';
import { lastCommittedStep } from '../../src/store/runs/run-records.js';
import { BusyMeter, observedBackend, observedEngine } from '../../src/workers/node/observed-calls.js';
import { environmentBackends } from '../../src/workers/node/environment-backends.js';
import { findEngine } from '../support/find-tools.js';

const gradingToken = 'a-token-for-tests';
const steps = { sft: 2, grpo: 4 };

export const run = 'unit';
export const lastSftStep = steps.sft;

export function startEnvironments(): Promise<EnvironmentServer> {
  return createEnvironmentServer({ port: 0, apps: servedApps(), faults: faultsOfApps, gradingToken });
}

/** Writes a folder with `tasks.jsonl` and `demonstrations.jsonl` of the tracker. */
export function writeData(folder: string): { tasks: string; demonstrations: string } {
  const lines = (items: readonly object[]): string =>
    items.map((item) => `${JSON.stringify(item)}\n`).join('');
  const tasks = join(folder, 'tasks.jsonl');
  const demonstrations = join(folder, 'demonstrations.jsonl');
  writeFileSync(tasks, lines(testTasks()));
  writeFileSync(
    demonstrations,
    lines(
      generateDemonstrations({
        apps: ['tracker'],
        seed: 1,
        drill_demonstrations: 12,
        teacher_demonstrations: 0,
      }),
    ),
  );
  return { tasks, demonstrations };
}

export function testTasks(): Task[] {
  return generateTasks({ apps: ['tracker'], seed: 1, train_tasks: 16, held_out_tasks: 4 });
}

/** A run whose steps take milliseconds: two supervised steps, then four GRPO steps with two groups of two samples. */
export function specFor(data: { tasks: string; demonstrations: string }): Record<string, unknown> {
  const tokenizer = resolve('presets/tokenizers/small');
  return {
    name: run,
    project: 'tests',
    seed: 5,
    model: {
      name: 'unit',
      architecture: {
        vocab_size: 1024,
        hidden_size: 32,
        intermediate_size: 64,
        num_hidden_layers: 1,
        num_attention_heads: 2,
        num_key_value_heads: 1,
        head_dim: 32,
        rope_theta: 10_000,
        max_position_embeddings: 512,
      },
      initializer_range: 0.04,
      tokenizer: join(tokenizer, 'tokenizer.json'),
      chat_template: join(tokenizer, 'chat_template.jinja'),
    },
    data: { ...data, eval_tasks: 2, final_eval_tasks: 3 },
    environments: [{ env_key: 'tracker' }],
    warm_start: [
      {
        name: 'drill',
        demonstrations: 'drill',
        updates: steps.sft,
        mini_batches_per_step: 1,
        mini_batch_size: 2,
        lr: 1e-3,
      },
    ],
    generator: {
      n_samples_per_prompt: 2,
      max_turns: 1,
      max_input_length: 448,
      max_generate_length: 6,
      max_sequence_length: 480,
      tools_format: 'signatures',
      system_prompt: 'short',
      max_output_chars: 400,
    },
    trainer: {
      train_batch_size: 2,
      max_training_steps: steps.grpo,
      lr: 1e-3,
      curriculum_floor: 0.1,
      ckpt_interval: 2,
      eval_interval: 2,
    },
  };
}

export const workflow = {
  workflowId: `train/${run}`,
  runId: '11111111-0000-0000-0000-000000000000',
  firstExecutionRunId: '11111111-0000-0000-0000-000000000000',
  namespace: 'default',
};

export const activityId = (step: number, part: string): string =>
  `step-${String(step).padStart(6, '0')}/${part}`;

/** A node that gives tests access to its engine and state files. */
export type NativeNode = NodeDeps & { holder: NativePolicyHolder };

export interface Harness {
  folder: string;
  store: OpenedStore;
  spec: Record<string, unknown>;
  orchestrator: OpenedDeps;
  node: NativeNode;
  engine: NativeEngine;
  said: string[];
  /** `chain`: the id of its first execution; another one means that a person starts the run again. */
  open(spec?: unknown, chain?: string): Promise<OpenedRun>;
  /** Claims the run for another execution; the harness continues as the previous owner. */
  takeOver(): Promise<OpenedRun>;
  /**
   * Runs an activity as the given attempt of `step-…/name`, and adds its progress reports to `progress`. Attempt 1 begins a new execution;
   * a later attempt continues the last execution.
   */
  attempt<T>(name: string, use: () => Promise<T>, number?: number, progress?: unknown[]): Promise<T>;
  /** Opens the run if needed, commits the base model, and takes the missing steps up to `last`. */
  advance(last: number): Promise<CommittedStep | null>;
  plan(step: number, control?: number): Promise<PlannedStep>;
  reference(planned: PlannedStep): StepReference & { plan: string };
  /** Input of a collect: the step's reference, and all slots. */
  rollouts(planned: PlannedStep): StepReference & { plan: string; slots: [number, number] };
  /** Another node worker on the same store, with its own disk and engine. */
  secondNode(): NativeNode;
  close(): Promise<void>;
}

/** `disk`: folder of the store; default: in the harness's own folder. */
export async function startHarness(environments: { url: string }, disk?: string): Promise<Harness> {
  const folder = mkdtempSync(join(tmpdir(), 'longhaul-activities-'));
  const spec = specFor(writeData(folder));
  const store = await openStore(`dir:${join(disk ?? folder, 'store')}`);
  const datasets = new DatasetCache(store);
  const said: string[] = [];
  const log = (message: string): void => void said.push(message);
  const closers: (() => Promise<void>)[] = [];

  function nodeDeps(name: string): { deps: NativeNode; engine: NativeEngine } {
    const disk = join(folder, name);
    mkdirSync(disk);
    const meter = new BusyMeter();
    const engine = createNativeEngine({ binary: findEngine(), threads: 1, log });
    const backends = environmentBackends({ url: environments.url, token: gradingToken });
    closers.push(async () => {
      await Promise.all([engine.close(), backends.close()]);
    });
    const deps: NativeNode = {
      store,
      node: name,
      runs: new RunDataCache(store, new DatasetCache(store)),
      holder: nativePolicyHolder({
        store,
        engine: observedEngine(engine, meter),
        folder: disk,
        log,
      }),
      journals: new JournalFolder(join(disk, 'journal'), log),
      backendFor: (wanted: EnvironmentSpec, callTimeoutMs: number) =>
        observedBackend(backends.backendFor(wanted, callTimeoutMs), meter),
      meter,
      lastCommits: new NewestEntries(),
      checkpointStalls: new NewestEntries(),
      life: new ProcessLife({ name, host: 'test', pid: process.pid }),
      log,
    };
    return { deps, engine };
  }

  const { deps: node, engine } = nodeDeps('node-a');
  const orchestrator: OpenedDeps = {
    store,
    datasets,
    runs: new RunDataCache(store, datasets),
    temporalAddress: '127.0.0.1:7233',
    life: new ProcessLife(
      { name: 'orchestrator', host: 'test', pid: process.pid },
      null,
      'orchestrator_restart',
    ),
    clusterId: () => Promise.resolve('cluster'),
    ownerState: () => Promise.resolve('closed'),
    requestLease: () => Promise.resolve(),
    isOver: () => Promise.resolve(false),
    log,
  };
  let owner = 0;
  let nodes = 1;
  /** For each activity id, the number of executions so far. */
  const executions = new Map<string, number>();
  const harness: Harness = {
    folder,
    store,
    spec,
    orchestrator,
    node,
    engine,
    said,
    async open(given = spec, chain = workflow.firstExecutionRunId) {
      const opened = await openRun(orchestrator, {
        ...{ spec: given, workflow: { ...workflow, runId: chain, firstExecutionRunId: chain } },
      });
      owner = opened.owner;
      return opened;
    },
    takeOver: () => {
      const other = '22222222-0000-0000-0000-000000000000';
      return openRun(orchestrator, {
        spec,
        workflow: { ...workflow, runId: other, firstExecutionRunId: other },
      });
    },
    attempt: (activityId, use, attempt = 1, progress = []) => {
      if (attempt === 1) executions.set(activityId, (executions.get(activityId) ?? 0) + 1);
      const environment = new MockActivityEnvironment(
        { activityId, attempt, scheduledTimestampMs: executions.get(activityId) ?? 0 },
        { logger: new DefaultLogger('ERROR') },
      );
      environment.on('heartbeat', (details: unknown) => progress.push(details));
      return environment.run(use as () => Promise<never>);
    },
    plan: (step, control = 0) => planStep(orchestrator, { run, step, owner, control }),
    reference: ({ step, plan }) => ({ run, owner, step, plan }),
    rollouts: (planned) => ({ ...harness.reference(planned), slots: [0, planned.slots] }),
    async advance(last) {
      if (owner === 0) await harness.open();
      const held = await lastCommittedStep(store, run);
      if (held < 0) await harness.attempt('base', () => commitBase(node, { run, owner }));
      let committed: CommittedStep | null = null;
      for (let step = Math.max(held, 0) + 1; step <= last; step++) {
        const planned = await harness.plan(step);
        const reference = harness.reference(planned);
        if (planned.kind === 'grpo') {
          await harness.attempt(activityId(step, 'collect'), () =>
            collectRollouts(node, harness.rollouts(planned)),
          );
        }
        committed = await harness.attempt(activityId(step, 'update'), () => updatePolicy(node, reference));
      }
      return committed;
    },
    secondNode: () => nodeDeps(`node-${++nodes}`).deps,
    async close() {
      await Promise.all(closers.map((close) => close()));
      rmSync(folder, { recursive: true, force: true });
    },
  };
  return harness;
}

/** A copy of the node that counts the calls of its engine. */
export function counting(deps: NativeNode): {
  deps: NativeNode;
  calls: { generate: number; update: number };
} {
  const calls = { generate: 0, update: 0 };
  const engine: FileEngine = deps.holder.engine;
  const { generate, update: apply } = engine;
  engine.generate = (...args) => {
    calls.generate += 1;
    return generate(...args);
  };
  engine.update = (...args) => {
    calls.update += 1;
    return apply(...args);
  };
  return { deps, calls };
}

/** Overwrites an object, although stored objects must never change. */
export async function tamper(
  store: ObjectStore,
  key: string,
  change: (bytes: Buffer) => Uint8Array | string | null,
): Promise<void> {
  const bytes = await store.get(key);
  if (bytes === null) throw new Error(`${key} is not there to be changed`);
  const changed = change(Buffer.from(bytes));
  await store.delete(key);
  if (changed !== null) await store.create(key, Buffer.from(changed));
}

/** Replaces a record with another valid one. */
export async function reviseRecord<Kind extends RecordKind>(
  store: ObjectStore,
  key: string,
  kind: Kind,
  change: (record: RecordTypes[Kind]) => RecordTypes[Kind],
): Promise<void> {
  const bytes = await encodeRecord(kind, change(await requireRecord(store, key, kind)));
  await tamper(store, key, () => bytes);
}
