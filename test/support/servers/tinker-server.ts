// A stock SkyRL server of the Tinker API on this machine, with its own packages, its JAX backend, and a small model with random weights.
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdirSync, openSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { freePort } from '../../../src/stack/free-port.js';

export interface TinkerServer {
  url: string;
  /** Name of the model on the server. */
  model: string;
  /** Folder of its saved states. */
  checkpoints: string;
  /** Kills all its processes at once, as when the machine fails. Its files stay. */
  kill(): Promise<void>;
  /** Starts it again on the same port and files. */
  restart(): Promise<void>;
  stop(): Promise<void>;
}

const upWithinMs = 120_000;

/** Compiled functions outlive a server: the first step of the next one takes seconds, not a minute. */
const compiled = join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'longhaul', 'jax-compiled');

/** `folder`: for its model, database, checkpoints and log. */
export async function startTinkerServer(python: string, folder: string): Promise<TinkerServer> {
  const model = join(folder, 'model');
  const script = resolve('test/support/servers/make_served_model.py');
  await promisify(execFile)(python, [script, model, resolve('presets/tokenizers/small/tokenizer.json')]);
  mkdirSync(join(folder, 'server'));
  return serveModel(python, folder, model);
}

/** Serves the Hugging Face folder `model`. */
export async function serveModel(python: string, folder: string, model: string): Promise<TinkerServer> {
  const port = await freePort();
  let server = await launch(python, folder, model, port);
  const kill = (): Promise<void> => endGroup(server);
  return {
    url: `http://127.0.0.1:${port}`,
    model,
    checkpoints: checkpointsOf(folder),
    kill,
    restart: async () => {
      await kill();
      server = await launch(python, folder, model, port);
    },
    stop: kill,
  };
}

const checkpointsOf = (folder: string): string => join(folder, 'server', 'checkpoints');

async function launch(python: string, folder: string, model: string, port: number): Promise<ChildProcess> {
  const bin = dirname(python);
  const log = openSync(join(folder, 'server.log'), 'a');
  const backend = { max_lora_adapters: 4, max_lora_rank: 8, sample_max_num_sequences: 16 };
  const server = spawn(
    join(bin, 'uv'),
    [
      ...['run', '--no-project', '-m', 'skyrl.tinker.api', '--backend', 'jax'],
      ...['--backend-config', JSON.stringify(backend), '--base-model', model],
      ...['--host', '127.0.0.1', '--port', String(port)],
      ...['--database-url', `sqlite:///${join(folder, 'server', 'tinker.db')}`],
      ...['--checkpoints-base', checkpointsOf(folder)],
    ],
    {
      // The engine outlives its launcher, so the whole process group is killed.
      detached: true,
      cwd: join(folder, 'server'),
      stdio: ['ignore', log, log],
      env: {
        ...process.env,
        ...{ VIRTUAL_ENV: dirname(bin), PATH: `${bin}:${process.env['PATH'] ?? ''}` },
        ...{ UV_OFFLINE: '1', HF_HUB_OFFLINE: '1', JAX_PLATFORMS: 'cpu' },
        ...{ JAX_COMPILATION_CACHE_DIR: compiled, JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS: '0' },
      },
    },
  );
  closeSync(log);
  const deadline = Date.now() + upWithinMs;
  for (;;) {
    const isUp = await fetch(`http://127.0.0.1:${port}/api/v1/healthz`).then(
      ({ ok }) => ok,
      () => false,
    );
    if (isUp) return server;
    if (server.exitCode !== null || Date.now() > deadline) {
      await endGroup(server);
      throw new Error(`the Tinker server did not come up; ${join(folder, 'server.log')} says why`);
    }
    await delay(200);
  }
}

async function endGroup(server: ChildProcess): Promise<void> {
  const isOver = server.exitCode !== null || server.signalCode !== null;
  const over = isOver ? null : once(server, 'exit');
  try {
    process.kill(-(server.pid as number), 'SIGKILL');
  } catch {
    // The processes have already ended.
  }
  await over;
}
