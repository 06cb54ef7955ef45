// Measures how fast a state is restored: from a file, compared with the rate at which `dd` reads that file; and by replay, compared with
// the time that the same updates took at first.
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { StateFolder } from '../../src/policy/state-folder.js';
import { StateRestorer } from '../../src/policy/state-restorer.js';
import { createNativeEngine } from '../../src/engine/native/native-engine.js';
import type { ObjectStore } from '../../src/store/objects/object-store.js';
import { lastCommittedStep, readRun, readState, readUpdate } from '../../src/store/runs/run-records.js';
import { findEngineBinary } from '../../src/workers/process/built-tool.js';
import { median } from '../figures/figure.js';
import { quickstartModel } from '../engine/quickstart-model.js';

export interface RestoreFigures {
  bytes: number;
  /** Median of several readings, each of the whole file from the disk. */
  disk_bytes_per_second: number;
  restore_bytes_per_second: number;
  /** The engine's rate divided by the disk's rate: median of pairs that were measured one after the other. */
  restore_share: number;
}

const run = promisify(execFile);

/** `width`: hidden size of the model; 512 gives a state of 300 MB. Throws if the file was read from memory instead of disk. */
export async function measureRestore(width = 512, times = 5): Promise<RestoreFigures> {
  const folder = await mkdtemp(join(tmpdir(), 'longhaul-bench-restore-'));
  const engine = createNativeEngine({ binary: findEngineBinary() });
  try {
    const { architecture, ...model } = await quickstartModel();
    const { state } = await engine.loadRandom({
      ...model,
      architecture: {
        ...architecture,
        ...{ hidden_size: width, intermediate_size: 3 * width, num_hidden_layers: 8 },
        ...{ num_attention_heads: width / 32, num_key_value_heads: width / 64 },
      },
    });
    const path = join(folder, 'state.safetensors');
    await engine.saveState(state, path);
    const { size } = await stat(path);
    const [plain, restored]: [number[], number[]] = [[], []];
    const reader = engine.pid();
    if (reader === null) throw new Error('the engine has ended');
    for (let time = 0; time < times; time++) {
      // `dd` is a child of this process. Linux adds a child's reads to its parent's when the child ends.
      plain.push(await cold(path, 'self', () => run('dd', [`if=${path}`, 'of=/dev/null', 'bs=4M'])));
      restored.push(await cold(path, reader, () => engine.loadState({ path })));
      if ((await engine.held())?.state !== state) throw new Error('another state came back');
    }
    return {
      bytes: size,
      disk_bytes_per_second: size / median(plain),
      restore_bytes_per_second: size / median(restored),
      restore_share: median(plain.map((seconds, index) => seconds / (restored[index] ?? Number.NaN))),
    };
  } finally {
    await engine.close();
    await rm(folder, { recursive: true, force: true });
  }
}

/**
 * Removes the file from the page cache, as GNU dd can, and returns the seconds that `read` takes. Throws if process `reader` has not read
 * the whole file from a device. That happens on a file system in memory, or if the cache keeps its pages: no disk rate can be measured
 * there.
 */
export async function cold(
  path: string,
  reader: number | 'self',
  read: () => Promise<unknown>,
): Promise<number> {
  await run('sync', [path]);
  await run('dd', [`if=${path}`, 'iflag=nocache', 'count=0']);
  const [{ size }, before] = [await stat(path), await deviceBytes(reader)];
  const begun = performance.now();
  await read();
  const seconds = (performance.now() - begun) / 1000;
  const bytes = (await deviceBytes(reader)) - before;
  if (bytes < size)
    throw new Error(
      `only ${bytes} of ${size} bytes of ${path} were read from a device: its file system keeps it in memory, so the rate of a disk cannot be measured there`,
    );
  return seconds;
}

/** Bytes that a process has read from devices so far. */
async function deviceBytes(pid: number | 'self'): Promise<number> {
  const counted = /^read_bytes: (\d+)$/m.exec(await readFile(`/proc/${pid}/io`, 'utf8'));
  if (!counted) throw new Error(`/proc/${pid}/io does not say what was read from devices`);
  return Number(counted[1]);
}

export interface ReplayFigures {
  steps: number;
  /** Time that the updates took at first, divided by the time of their replay. */
  replay_speed: number;
}

/** Replays the last `steps` updates of a finished run, from the state before them. */
export async function measureReplay(store: ObjectStore, of: string, steps: number): Promise<ReplayFigures> {
  const folder = await mkdtemp(join(tmpdir(), 'longhaul-bench-replay-'));
  const engine = createNativeEngine({ binary: findEngineBinary() });
  const restored: { steps: number; seconds: number }[] = [];
  const states = new StateFolder(join(folder, 'states'));
  const fetched = new StateFolder(join(folder, 'fetched-states'));
  const restorer = new StateRestorer({ ...{ store, engine, states, fetched, folder }, log: () => undefined });
  const attempt = {
    signal: new AbortController().signal,
    progress: () => undefined,
    restored: ({ replay }: { replay: { steps: number; seconds: number } }) => restored.push(replay),
  };
  try {
    const record = await readRun(store, of);
    const last = await lastCommittedStep(store, of);
    const first = last - steps;
    await restorer.restore(record, first, await readState(store, of, first), attempt);
    restored.length = 0;
    // Start from the state `first`: the run's last checkpoint must not be used.
    await restorer.restore(record, last, await readState(store, of, last), attempt, first);
    let made = 0;
    for (let step = first + 1; step <= last; step++)
      made += ((await readUpdate(store, of, step)).observed.timings_ms['policy_train'] ?? 0) / 1000;
    const replayed = restored.reduce((sum, { seconds }) => sum + seconds, 0);
    const count = restored.reduce((sum, one) => sum + one.steps, 0);
    if (count !== steps) throw new Error(`${count} of ${steps} updates were replayed`);
    return { steps, replay_speed: made / replayed };
  } finally {
    await engine.close();
    await rm(folder, { recursive: true, force: true });
  }
}
