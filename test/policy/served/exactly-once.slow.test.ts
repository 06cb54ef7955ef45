// Training on a stock Tinker server (R32 to R37): a worker that dies behind any of its calls costs time alone. What is compared are log-probs of
// the final state, since nobody promises bits.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { NodeDeps } from '../../../src/activities/node-deps.js';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import { collectRollouts } from '../../../src/activities/step/collect-rollouts.js';
import { commitBase } from '../../../src/activities/step/commit-base.js';
import { updatePolicy } from '../../../src/activities/step/update-policy.js';
import { createStateLock } from '../../../src/engine/native/state-lock.js';
import { TinkerClient } from '../../../src/engine/tinker/futures.js';
import { TinkerEngine } from '../../../src/engine/tinker/sampling.js';
import { TinkerService } from '../../../src/engine/tinker/service.js';
import type { EnvironmentServer } from '../../../src/environments/server/environment-server.js';
import { PolicyHolder } from '../../../src/policy/policy-holder.js';
import { ServedStates } from '../../../src/policy/served-states.js';
import { episodeKey } from '../../../src/store/objects/layout.js';
import { encodeRecord } from '../../../src/store/records/record-codec.js';
import { requireRecord } from '../../../src/store/records/records.js';
import { readInstances, readSavedStates } from '../../../src/store/runs/served-models.js';
import { readState } from '../../../src/store/runs/run-records.js';
import { startTinkerServer, type TinkerServer, tinkerVenv } from '../../support/servers/tinker-server.js';
import {
  activityId,
  type Harness,
  run,
  startEnvironments,
  startHarness,
  tamper,
} from '../../activities/fixture.js';

const venv = await tinkerVenv();
if ('skipped' in venv) console.warn(`the Tinker server is not tried: ${venv.skipped}`);

const last = 4;

describe.skipIf('skipped' in venv)('a run on a Tinker server', { timeout: 300_000 }, () => {
  let folder: string;
  let server: TinkerServer;
  let environments: EnvironmentServer;
  const harnesses: Harness[] = [];
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'longhaul-tinker-'));
    environments = await startEnvironments();
    server = await startTinkerServer((venv as { python: string }).python, folder);
  }, 240_000);
  afterAll(async () => {
    await server?.stop();
    await Promise.all(harnesses.map((harness) => harness.close()));
    await environments?.close();
    rmSync(folder, { recursive: true, force: true });
  });

  /** `dies`: the call, counted over the worker's life, whose answer it never sees. */
  function servedNode({ store, node, folder: disk }: Harness, dies: (call: string) => boolean): NodeDeps {
    const service = new TinkerService(new DyingClient({ url: server.url }, dies));
    const policy = { service: 'test', model: server.model };
    const engine = new TinkerEngine(service, policy);
    const keeper = new ServedStates({
      ...{ store, engine, policy, service },
      ...{ by: 'node-a', folder: join(disk, 'served'), log: () => undefined },
    });
    return { ...node, holder: new PolicyHolder({ store, engine, keeper, lock: createStateLock() }) };
  }

  async function open(): Promise<Harness> {
    const harness = await startHarness(environments);
    harnesses.push(harness);
    const { model, generator, trainer, ...rest } = harness.spec as Record<string, Record<string, unknown>>;
    const { architecture: _, initializer_range: __, ...named } = model!;
    await harness.open({
      ...rest,
      warm_start: [],
      model: {
        ...named,
        served: { name: server.model, rank: 8, reduction: 'sequence_mean', chunk_sequences: 2 },
      },
      generator: { ...generator, temperature: 1 },
      trainer: { ...trainer, lr: 1e-2, weight_decay: 0, max_training_steps: last },
    });
    return harness;
  }

  /** One episode of each group is graded as if it had passed, so that each step changes the state. */
  async function pass({ store }: Harness, step: number): Promise<void> {
    for (const slot of [0, 1]) {
      const key = episodeKey(run, step, slot, step % 2);
      const episode = await requireRecord(store, key, 'episode');
      const bytes = await encodeRecord('episode', { ...episode, outcome: { status: 'graded', value: 1 } });
      await tamper(store, key, () => bytes);
    }
  }

  /** Takes all steps. `lost`: the one before whose episodes the server loses the model. `deaths`: by step, the call behind whose sending the worker dies; another takes its place. */
  async function train(deaths: Record<number, string> = {}, lost?: number): Promise<Harness> {
    const harness = await open();
    let node = servedNode(harness, () => false);
    await harness.attempt('base', () => commitBase(node, { run, owner: 1 }));
    for (let step = 1; step <= last; step++) {
      const planned = await harness.plan(step);
      const collect = (attempt: number) =>
        harness.attempt(
          activityId(step, 'collect'),
          () => collectRollouts(node, harness.rollouts(planned)),
          attempt,
        );
      if (step === lost) {
        await node.holder.withState(run, step - 1, () => loseModel(harness));
        await expect(collect(1)).rejects.toThrow('not loaded');
      }
      await collect(step === lost ? 2 : 1);
      await pass(harness, step);
      const update = (by: NodeDeps, attempt: number) =>
        harness.attempt(
          activityId(step, 'update'),
          () => updatePolicy(by, harness.reference(planned)),
          attempt,
        );
      const [name, count = '1'] = deaths[step]?.split(' ') ?? [];
      if (name !== undefined) {
        let seen = 0;
        const dying = servedNode(harness, (call) => call === name && ++seen === Number(count));
        await expect(update(dying, 1)).rejects.toThrow('killed');
        node = servedNode(harness, () => false);
      }
      expect(await update(node, name === undefined ? 1 : 2)).toMatchObject({ applied: true });
    }
    return harness;
  }

  async function loseModel({ store }: Harness): Promise<void> {
    const service = new TinkerService(new TinkerClient({ url: server.url }));
    for (const { model } of await readInstances(store, run)) await service.unload(model);
  }

  async function finalLogprobs(harness: Harness): Promise<number[]> {
    const { store } = harness;
    await loseModel(harness);
    const saved = (await readSavedStates(store, run, last)).at(-1)!;
    expect(saved.state).toBe(await readState(store, run, last));
    return logprobsOf(saved.path);
  }

  /** Log-probs of a fixed text under a saved state, or under fresh adapters, from a model of its own. */
  async function logprobsOf(path: string | null): Promise<number[]> {
    const service = new TinkerService(new TinkerClient({ url: server.url }));
    const model = await service.createModel(server.model, { rank: 8, seed: 5 });
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

  const furthest = (a: number[], b: number[]): number =>
    Math.max(...a.map((value, at) => Math.abs(value - b[at]!)));

  test('ends with the same log-probs where workers died behind a chunk, an optimizer’s step and a save, or the server lost the model', async () => {
    const undisturbed = await train();
    const expected = await finalLogprobs(undisturbed);
    const disturbed = await train({
      1: '/forward_backward 1',
      2: '/optim_step 1',
      3: '/save_weights 1',
      4: '/forward_backward 2',
    });
    expect(furthest(await finalLogprobs(disturbed), expected)).toBeLessThanOrEqual(1e-6);
    const reloaded = await train({}, 3);
    expect(furthest(await finalLogprobs(reloaded), expected)).toBeLessThanOrEqual(1e-6);
    for (const { store } of [undisturbed, disturbed, reloaded])
      expect((await auditRun(store, run)).violations).toEqual([]);
    // The control: another state is far from it.
    expect(furthest(await logprobsOf(null), expected)).toBeGreaterThan(0.01);
  });
});

/** Loses the answer of the chosen call, and of every call after it: the process is dead. */
class DyingClient extends TinkerClient {
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
