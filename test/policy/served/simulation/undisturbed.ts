// A run on the simulated server that nothing disturbs: what its process leaves there and in the store.
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
  /** A process of a node. */
  worker: (name: string) => Worker;
  /** A client that belongs to no node. */
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
  if (trained) {
    const trainer = worker('a');
    for (const { step } of run.steps) {
      await trainer.collect(run, step);
      await trainer.update(run, step, 'held');
    }
    server.restart();
  }
  return {
    ...{ store: viewOf(memory, (_, act) => Promise.resolve(act())), memory, server, run, worker },
    service: () => new TinkerService(new SimulatedClient(worker('audit'), world)),
  };
}
