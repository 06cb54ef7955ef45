// Runs on a stock Tinker server: activities over a real store, environment server and Tinker server. What is compared are log-probs of the
// final state, since nobody promises bits.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { strict as assert } from 'node:assert';
import Database from 'better-sqlite3';
import type { NodeDeps } from '../../../src/activities/node-deps.js';
import { collectRollouts } from '../../../src/activities/step/collect-rollouts.js';
import { commitBase } from '../../../src/activities/step/commit-base.js';
import { updatePolicy } from '../../../src/activities/step/update-policy.js';
import type { PlannedStep } from '../../../src/activities/contracts.js';
import { TinkerClient } from '../../../src/engine/tinker/futures.js';
import { TinkerEngine } from '../../../src/engine/tinker/sampling.js';
import { TinkerService } from '../../../src/engine/tinker/service.js';
import type { EnvironmentServer } from '../../../examples/apps/server/environment-server.js';
import { PolicyHolder } from '../../../src/policy/policy-holder.js';
import { ServedStateKeeper } from '../../../src/policy/served/served-state-keeper.js';
import { episodeKey } from '../../../src/store/record-keys.js';
import { encodeRecord } from '../../../src/store/records/record-codec.js';
import { requireRecord } from '../../../src/store/records/records.js';
import { readInstances, readSavedStates } from '../../../src/store/runs/served-models.js';
import { readState } from '../../../src/store/runs/run-records.js';
import { pythonWith } from '../../support/python/python-environments.js';
import { startTinkerServer, type TinkerServer } from '../../support/servers/tinker-server.js';
import {
  activityId,
  type Harness,
  run,
  startEnvironments,
  startHarness,
  tamper,
} from '../../activities/fixture.js';

export const python = await pythonWith('tinker');

export const lastStep = 4;

/** A node, and what its process does with the server. */
export interface ServedNode extends NodeDeps {
  service: TinkerService;
}

export interface NodeOptions {
  url?: string;
  /** A service that a test has changed. */
  service?: TinkerService;
  name?: string;
}

export interface ServedWorld {
  server: TinkerServer;
  /** `warmed`: with the harness's supervised steps before the others. */
  open(served?: object, trainer?: object, more?: { warmed?: boolean; samples?: number }): Promise<Harness>;
  node(harness: Harness, options?: NodeOptions): ServedNode;
  /** Frees the server's places, of which it has three. */
  unloadModels(): Promise<void>;
  close(): Promise<void>;
}

export async function startServedWorld(): Promise<ServedWorld> {
  const folder = mkdtempSync(join(tmpdir(), 'longhaul-tinker-'));
  const environments: EnvironmentServer = await startEnvironments();
  const server = await startTinkerServer(python, folder);
  const harnesses: Harness[] = [];
  const idle: Harness[] = [];
  const services: TinkerService[] = [];
  return {
    server,
    open: async (served = {}, trainer = {}, { warmed = false, samples = 2 } = {}) => {
      const harness = await startHarness(environments);
      harnesses.push(harness);
      await harness.open(servedSpec(harness, server.model, served, trainer, { warmed, samples }));
      return harness;
    },
    node: ({ store, node, folder: disk }, { url = server.url, name = 'node-a', ...options } = {}) => {
      const service = options.service ?? new TinkerService(new TinkerClient({ url }));
      services.push(service);
      const policy = { service: 'test', model: server.model };
      const engine = new TinkerEngine(service, policy);
      const keeper = new ServedStateKeeper({
        ...{ store, engine, policy, service },
        ...{ by: name, folder: join(disk, 'served'), log: () => undefined },
      });
      const holder = new PolicyHolder({ store, engine, keeper });
      return { ...node, holder, service, sent: service.sent };
    },
    unloadModels: async () => {
      idle.push(...harnesses.splice(0));
      await unload(loadedModels(folder), server);
    },
    close: async () => {
      for (const service of services) service.close();
      await server.stop();
      await Promise.all([...idle, ...harnesses].map((harness) => harness.close()));
      await environments.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

function servedSpec(
  { spec }: Harness,
  name: string,
  served: object,
  changes: object,
  { warmed, samples }: { warmed: boolean; samples: number },
): object {
  const { model, generator, trainer, ...rest } = spec as Record<string, Record<string, unknown>>;
  const { architecture: _, initializer_range: __, ...named } = model!;
  return {
    ...rest,
    ...(warmed ? {} : { warm_start: [] }),
    model: {
      ...named,
      served: { name, rank: 8, reduction: 'sequence_mean', chunk_sequences: 2, ...served },
    },
    generator: { ...generator, temperature: 1, n_samples_per_prompt: samples },
    trainer: { ...trainer, lr: 1e-2, weight_decay: 0, max_training_steps: lastStep, ...changes },
  };
}

export function commitServedBase(harness: Harness, node: NodeDeps): Promise<unknown> {
  return harness.attempt('base', () => commitBase(node, { run, owner: 1 }));
}

export function collect(harness: Harness, node: NodeDeps, planned: PlannedStep, attempt = 1) {
  const rollouts = () => collectRollouts(node, harness.rollouts(planned));
  return harness.attempt(activityId(planned.step, 'collect'), rollouts, attempt);
}

/** One episode of each group is graded as if it had passed, so that each step changes the state. */
export async function passOne({ store }: Harness, step: number, of = run, slots = 2): Promise<void> {
  for (let slot = 0; slot < slots; slot++) {
    const key = episodeKey(of, step, slot, step % 2);
    const episode = await requireRecord(store, key, 'episode');
    const bytes = await encodeRecord('episode', { ...episode, outcome: { status: 'graded', value: 1 } });
    await tamper(store, key, () => bytes);
  }
}

export function update(harness: Harness, node: NodeDeps, planned: PlannedStep, attempt = 1) {
  const apply = () => updatePolicy(node, harness.reference(planned));
  return harness.attempt(activityId(planned.step, 'update'), apply, attempt);
}

/** Takes all steps on one node. */
export async function trainOn(harness: Harness, node: NodeDeps, last = lastStep): Promise<void> {
  await commitServedBase(harness, node);
  for (let step = 1; step <= last; step++) {
    const planned = await harness.plan(step);
    await collect(harness, node, planned);
    await passOne(harness, step);
    assert.equal((await update(harness, node, planned)).applied, true);
  }
}

/** Unloads all models that the run has had. */
export async function loseModels({ store }: Harness, server: TinkerServer): Promise<void> {
  await unload(
    (await readInstances(store, run)).map(({ model }) => model),
    server,
  );
}

async function unload(models: readonly string[], { url }: TinkerServer): Promise<void> {
  const service = new TinkerService(new TinkerClient({ url }));
  for (const model of models) await service.unload(model);
  service.close();
}

/** Also those of dead workers, which no record names: the server would keep their places for five minutes. */
function loadedModels(folder: string): string[] {
  const database = new Database(join(folder, 'server', 'tinker.db'), { readonly: true });
  try {
    const rows = database.prepare("SELECT model_id FROM models WHERE status <> 'unloaded'").all();
    return (rows as { model_id: string }[]).map(({ model_id }) => model_id);
  } finally {
    database.close();
  }
}

/** From the newest saved state, in a model of its own. */
export async function finalLogprobs(
  harness: Harness,
  server: TinkerServer,
  last = lastStep,
): Promise<number[]> {
  const { store } = harness;
  await loseModels(harness, server);
  const saved = (await readSavedStates(store, run, last)).at(-1)!;
  assert.equal(saved.state, await readState(store, run, last));
  return logprobsOf(server, saved.path);
}

/** Log-probs of a fixed text under a saved state; `path` null: under fresh adapters. */
export async function logprobsOf(server: TinkerServer, path: string | null): Promise<number[]> {
  const service = new TinkerService(new TinkerClient({ url: server.url }));
  const { model } = await service.createModel(server.model, { rank: 8, seed: 5 });
  if (path !== null) await service.loadWeights({ model_id: model, seq_id: 1 }, path);
  const tokens = Array.from({ length: 60 }, (_, at) => (at * 37) % 1000);
  const inputs = { target_tokens: { dtype: 'int64' as const, data: [...tokens.slice(1), 1] } };
  const { outputs } = await service.pass({
    ...{ model_id: model, loss_fn: 'cross_entropy', forward_only: true },
    data: [{ tokens, inputs }],
  });
  await service.unload(model);
  service.close();
  return outputs[0]!['logprobs']!;
}

export const furthest = (a: readonly number[], b: readonly number[]): number =>
  Math.max(...a.map((value, at) => Math.abs(value - b[at]!)));

/** Loses the answer of the chosen call, and of every call after it: the process is dead. */
export class DyingClient extends TinkerClient {
  private dead = false;

  constructor(
    options: ConstructorParameters<typeof TinkerClient>[0],
    private readonly dies: (call: string) => boolean,
  ) {
    super(options);
  }

  override async call<T extends object>(...args: Parameters<TinkerClient['call']>): Promise<T> {
    if (this.dead) throw new Error('killed');
    const answer = await super.call<T>(...args);
    this.dead = this.dead || this.dies(args[0]);
    if (this.dead) throw new Error('killed');
    return answer;
  }
}
