// Trains a run without faults on the simulated server, for tests of what it leaves on the server and in the store.
import type { TinkerClient } from '../../../../src/engine/tinker/futures.js';
import { TinkerService } from '../../../../src/engine/tinker/service.js';
import type { ObjectStore } from '../../../../src/store/objects/object-store.js';
import type { Disturbances } from './disturbances.js';
import { MemoryStore, viewOf } from './memory-store.js';
import { Random } from './random.js';
import type { Scheduler } from './scheduler.js';
import { type ScriptedRun, type ScriptOptions, writeScript } from './script.js';
import { SimulatedServer } from './server.js';
import { SimulatedClient, Worker, type World } from './worker.js';

export interface Undisturbed {
  store: ObjectStore;
  memory: MemoryStore;
  server: SimulatedServer;
  run: ScriptedRun;
  /** `run`, and the one that continues it if the options say so. */
  runs: ScriptedRun[];
  /** A process of a node. */
  worker: (name: string) => Worker;
  /** A client that belongs to no node. */
  client: () => TinkerClient;
  service: () => TinkerService;
}

const plain: ScriptOptions = {
  ...{ number: 1, steps: 3, movement: 0.05, saveEvery: 1, numbered: true },
  ...{ rescored: false, phase: null, poisoned: null, fork: null },
};

/** `trained`: its steps are taken, and the server has been restarted since. */
export async function undisturbed(
  options: Partial<ScriptOptions> = {},
  { trained = true, Server = SimulatedServer } = {},
): Promise<Undisturbed> {
  const scriptOptions = { ...plain, ...options };
  const { records, runs } = await writeScript(scriptOptions);
  const run = runs[0]!;
  const memory = new MemoryStore();
  for (const [key, bytes] of records) memory.create(key, bytes);
  const server = new Server({
    ...{ movement: scriptOptions.movement, numbered: scriptOptions.numbered, lies: true },
    say: () => undefined,
    nameOf: () => '',
  });
  const world: World = {
    memory,
    random: new Random(1),
    scheduler: {
      nowMs: 0,
      at: (_: unknown, __: unknown, act: () => unknown) => Promise.resolve(act()),
      every: () => () => undefined,
      pause: () => Promise.resolve(),
    } as unknown as Scheduler,
    disturbances: {
      sends: () => undefined,
      sent: () => undefined,
      deliver: (call: { path: string; body: Uint8Array | undefined; method: string }) =>
        server.handle(call.path, call.body, call.method),
    } as unknown as Disturbances,
    say: () => undefined,
    sampled: () => undefined,
  };
  const worker = (name: string): Worker => new Worker(name, name, world);
  const client = (): TinkerClient => new SimulatedClient(worker('audit'), world);
  if (trained) {
    const trainer = worker('a');
    for (const { step } of run.steps) await take(trainer, run, step);
    server.restart();
  }
  return {
    ...{ store: viewOf(memory, (_, act) => Promise.resolve(act())), memory, server, run, runs, worker },
    client,
    service: () => new TinkerService(client()),
  };
}

/** As a run takes a step. */
export async function take(worker: Worker, run: ScriptedRun, step: number): Promise<void> {
  await worker.collect(run, step);
  await worker.update(run, step, 'held');
}

/** From here on, each optimizer step silently moves the weights `times` times. Returns a function that ends this. */
export function misstep(server: SimulatedServer, times: 0 | 2): () => void {
  const handle = server.handle.bind(server);
  server.handle = (path, body, method) => {
    const { model_id = '' } = (body ?? {}) as { model_id?: string };
    const adapters = server.models.get(model_id)?.adapters;
    if (path !== '/optim_step' || !adapters) return handle(path, body, method);
    const before = [...adapters.weights];
    const answer = handle(path, body, method);
    adapters.weights = adapters.weights.map((after, at) => before[at]! + times * (after - before[at]!));
    return answer;
  };
  return () => void (server.handle = handle);
}
