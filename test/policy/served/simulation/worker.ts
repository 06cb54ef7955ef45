// A process of a node: the real code that serves states, on a simulated server and store, with the calls that activities make.
import type { GenerateResult, UpdateResult } from '../../../../src/engine/policy-engine.js';
import { TinkerClient, type WaitOptions } from '../../../../src/engine/tinker/futures.js';
import { TinkerEngine } from '../../../../src/engine/tinker/sampling.js';
import { TinkerService } from '../../../../src/engine/tinker/service.js';
import { PolicyHolder } from '../../../../src/policy/policy-holder.js';
import { removeSaved } from '../../../../src/policy/served/removed-states.js';
import { ServedStateKeeper } from '../../../../src/policy/served/served-state-keeper.js';
import { type Provenance, provenances, type StateReader } from '../../../../src/policy/state-keeper.js';
import type { Digest } from '../../../../src/spec/records/parts.js';
import type { UpdateRecord } from '../../../../src/spec/records/update.js';
import { checkpointManifestKey, updateKey } from '../../../../src/store/record-keys.js';
import type { ObjectStore } from '../../../../src/store/objects/object-store.js';
import { Diverged } from '../../../../src/store/record-errors.js';
import { recordFunction } from '../../../../src/store/records/records.js';
import { checkpointHome } from '../../../../src/store/runs/checkpoints.js';
import { readState, readUpdateIfAny } from '../../../../src/store/runs/run-records.js';
import type { Disturbances } from './disturbances.js';
import { type MemoryStore, viewOf } from './memory-store.js';
import type { Random } from './random.js';
import type { Actor, Scheduler } from './scheduler.js';
import { numerics, policy, type ScriptedRun } from './script.js';

export interface World {
  memory: MemoryStore;
  scheduler: Scheduler;
  disturbances: Disturbances;
  random: Random;
  say: (event: () => string) => void;
  /** Called with each sample: a state's log-probs are known. */
  sampled: (run: ScriptedRun, step: number, prompt: readonly number[], sample: GenerateResult) => void;
}

const prompt = [5, 11];
const sampleTokens = 2;

export class Worker implements Actor {
  dead = false;
  frozen = false;
  readonly timers: Actor['timers'] = new Set();
  /** What it does now; null: nothing. */
  job: string | null = null;

  private readonly store: ObjectStore;
  private readonly engine: TinkerEngine;
  private readonly service: TinkerService;
  private readonly holder: PolicyHolder;
  private readonly emptied = new Set<string>();

  constructor(
    readonly name: string,
    readonly node: string,
    private readonly world: World,
  ) {
    const { scheduler, memory } = world;
    const store = viewOf(memory, (what, act, writes) => scheduler.at(this, what, act, writes));
    const service = new TinkerService(new SimulatedClient(this, world));
    const engine = new TinkerEngine(service, policy);
    const log = (message: string): void => world.say(() => `${name}: ${message}`);
    const keeper = new ServedStateKeeper({ store, engine, policy, service, by: node, folder: '/none', log });
    this.holder = new PolicyHolder({ store, engine, keeper });
    [this.store, this.service, this.engine] = [store, service, engine];
  }

  /** The server's model that it samples from. */
  get sampledModel(): string | null {
    return /^tinker:\/\/([^/]+)/.exec(this.engine.sampled?.path ?? '')?.[1] ?? null;
  }

  /** Does what planStep and collectRollouts do. */
  async collect(scripted: ScriptedRun, step: number): Promise<void> {
    const { run } = scripted;
    if (await readUpdateIfAny(this.store, run, step)) return;
    const { plan } = scripted.steps[step - scripted.after - 1]!;
    await this.store.create(plan.key, plan.bytes);
    await this.sample(scripted, step - 1, 1 + this.world.random.below(3), 'run');
  }

  async sample(scripted: ScriptedRun, step: number, count: number, reader: StateReader): Promise<void> {
    const one = async (state: Digest, sample: number): Promise<void> => {
      const tokens = [...prompt, sample];
      const request = { state, tokens, temperature: 1, max_new_tokens: sampleTokens, stop_tokens: [] };
      const key = { seed: 1, domain: 'train', step, slot: 0, sample } as const;
      this.world.sampled(scripted, step, tokens, await this.engine.generate({ ...request, key }));
    };
    const use = async (state: Digest): Promise<void> => {
      for (let sample = 0; sample < count; sample++) await one(state, sample);
    };
    await this.holder.withState(scripted.run, step, reader, use, withoutAttempt());
  }

  /** Does what updatePolicy does. */
  async update(scripted: ScriptedRun, step: number, first: Provenance): Promise<void> {
    const { run } = scripted;
    const { batch } = scripted.steps[step - scripted.after - 1]!;
    if (await readUpdateIfAny(this.store, run, step)) return;
    await this.store.create(batch.key, batch.bytes);
    if (await readUpdateIfAny(this.store, run, step)) return;
    let disagreement: Error | null = null;
    for (const provenance of provenances.slice(provenances.indexOf(first)))
      try {
        const record = await this.compute(scripted, step, provenance);
        await recordFunction(this.store, updateKey(run, step), 'update', record);
        return;
      } catch (error) {
        if (!(error instanceof Diverged)) throw error;
        disagreement = error;
      }
    throw disagreement!;
  }

  private async compute(scripted: ScriptedRun, step: number, provenance: Provenance): Promise<UpdateRecord> {
    const { run } = scripted;
    const { plan, batch, stepId } = scripted.steps[step - scripted.after - 1]!;
    const apply = (): Promise<UpdateResult> =>
      this.holder.apply({ run, step, plan: plan.record, batch: batch.digest, stepId });
    const result = await this.holder.alone(run, step - 1, stepId, apply, undefined, provenance);
    // What else the result has is for the record.
    const { state, applied, metrics, rescored, ...observed } = result;
    return {
      schema: 'longhaul.update/4',
      identity: {
        ...{ run, step, kind: 'grpo', plan: plan.digest, batch: batch.digest, step_id: stepId },
        ...{ previous_state: plan.record.previous_state, state, numerics, applied, outcomes: [[1, 0]] },
        ...(rescored ? { rescored } : {}),
      },
      observed: {
        ...observed,
        metrics: Object.fromEntries(Object.entries(metrics).filter(([, value]) => Number.isFinite(value))),
        ...{ timings_ms: {}, engine: { build: 'simulated', incarnation: this.name } },
        committed_at: at,
      },
    };
  }

  /** Does what saveState and uploadCheckpoint do, without the files. */
  async checkpoint({ run, record }: ScriptedRun, step: number): Promise<void> {
    const { store, service, engine } = this;
    const committed = { run, step, state: await readState(store, run, step) };
    await this.holder.keep(committed, withoutAttempt());
    if ((await this.holder.keeper.problemOf(committed, withoutAttempt().signal)) !== null) return;
    const { project, model } = checkpointHome(record);
    await recordFunction(store, checkpointManifestKey({ project, model, run }, step), 'checkpoint', {
      ...{ schema: 'longhaul.checkpoint/1', run, step, state: committed.state, numerics },
      files: [{ path: 'adapter.tar.gz', size: 1, sha256: committed.state }],
    });
    const log = (message: string): void => this.world.say(() => `${this.name}: ${message}`);
    const removal = { store, service, by: this.node, log, emptied: this.emptied };
    await removeSaved(removal, run, engine.sampled?.path);
  }
}

const withoutAttempt = () => ({ signal: new AbortController().signal, progress: () => undefined });

const at = '2026-01-02T03:04:05.678Z';

/** Calls the simulated server, on the simulation's clock. */
export class SimulatedClient extends TinkerClient {
  constructor(
    private readonly actor: Actor,
    private readonly world: World,
  ) {
    const { scheduler } = world;
    super({
      url: 'simulated:',
      now: () => scheduler.nowMs,
      every: (ms, act) => scheduler.every(actor, ms, act),
    });
  }

  override async pause(ms: number, { signal }: WaitOptions): Promise<void> {
    await this.world.scheduler.pause(this.actor, ms);
    signal?.throwIfAborted();
  }

  protected override async fetch(
    ...[path, body, , signal, , method = body === undefined ? 'GET' : 'POST']: Parameters<
      TinkerClient['fetch']
    >
  ): ReturnType<TinkerClient['fetch']> {
    const { scheduler, disturbances } = this.world;
    signal?.throwIfAborted();
    const call = { path, body, method };
    // A heartbeat changes nothing that a process could notice.
    if (path === '/session_heartbeat') return disturbances.deliver(call);
    disturbances.sends(this.actor, call);
    const answer = scheduler.at(this.actor, path, () => disturbances.deliver(call), true);
    disturbances.sent();
    return answer;
  }
}
