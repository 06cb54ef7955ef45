// A service that answers as Fleet's does, as one Python process (`service/service.py`), with 100 tasks for it.
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';

/** Imports of a busy machine took 70 s. */
const startsWithinMs = 300_000;

/** A rate is a share of the events, 0 to 1. */
export interface FleetFaults {
  /** Starts the random sequence of every fault again. */
  seed?: number;
  /** The instance is made, and the connection ends without an answer. */
  drop_create_reply?: number;
  fail_create?: number;
  /** The tool runs, and the connection ends without an answer. */
  drop_call_reply?: number;
  fail_call?: number;
  drop_delete_reply?: number;
  fail_delete?: number;
  /** The answer has `success: false`. */
  fail_verify?: number;
  /** The answer is a 500. */
  verify_http?: number;
  /** The answer is a 504. */
  verify_busy?: number;
  /** The connection ends without an answer, and the reset is carried out a second later. */
  drop_reset_reply?: number;
  fail_reset?: number;
  /** The app's server answers 404 when it is asked for its tools. */
  hide_tools?: number;
  /** An instance is not shown: the answer is a 429. */
  limit_polls?: number;
  judge_error?: number;
  result_none?: number;
  /** The databases are locked just before the verifier runs, which then waits for them, and until `lock_ms` (at first 0) after its end. */
  lock_while_verifying?: number;
  lock_ms?: number;
  /** Every query of every database answers "database is locked". */
  lock?: boolean;
  provision_s?: number;
  instance_limit?: number;
  /** Whether an instance's routes ask for a runner token. They do at the start. */
  gated?: boolean;
  slow_call_s?: number;
  /** The app's server answers 404 until its instance is so old. */
  app_starts_s?: number;
  /** How many of the two databases an instance lists. */
  databases?: number;
  /** Ends all instances now. */
  expire_all?: boolean;
  /** Moves the service's clock forward: times to live, heartbeats, provisioning. */
  advance_s?: number;
}

/** No faults, and the same random sequence each time. */
export const calm: FleetFaults = {
  ...{ drop_create_reply: 0, fail_create: 0, drop_call_reply: 0, fail_call: 0, drop_delete_reply: 0 },
  ...{ fail_delete: 0, fail_verify: 0, verify_http: 0, judge_error: 0, result_none: 0, lock: false },
  ...{
    verify_busy: 0,
    drop_reset_reply: 0,
    fail_reset: 0,
    hide_tools: 0,
    limit_polls: 0,
    app_starts_s: 0,
    databases: 2,
  },
  ...{ lock_while_verifying: 0, provision_s: 0, instance_limit: 1000, gated: true, slow_call_s: 0, seed: 1 },
};

export interface FleetLog {
  settings: Record<string, number | boolean>;
  /** How often each fault struck. */
  faults: Record<string, number>;
  counts: Record<string, number>;
  creates: {
    request_id: string | null;
    run_id: string | null;
    instance_id: string | null;
    duplicate: boolean;
  }[];
  instances: {
    instance_id: string;
    status: 'pending' | 'running' | 'stopped';
    run_id: string | null;
    env_key: string;
    env_version: string;
    data_version: string;
    env_variables: Record<string, string>;
    region: string;
    ttl_seconds: number | null;
    heartbeat_interval: number | null;
    databases: { seed: string; current: string };
  }[];
  /** In the order in which they reached their instances, those whose answers were dropped among them. */
  calls: { instance_id: string; tool: string; arguments: Record<string, unknown> }[];
  executions: {
    instance_id: string;
    key: string | null;
    sha256: string;
    fault: string | null;
    result: unknown;
    success: boolean | null;
  }[];
  heartbeats: { instance_id: string; region: string | null }[];
  uploads: { sha256: string; is_repeated: boolean }[];
}

export interface FleetService {
  url: string;
  key: string;
  /** Folder with `tasks.json`, `solutions.jsonl` and `wrong.jsonl`. */
  tasks: string;
  control(patch: FleetFaults): Promise<void>;
  log(): Promise<FleetLog>;
  stop(): Promise<void>;
}

const scripts = resolve('test/environments/fleet/service');

export async function startFleetService(python: string): Promise<FleetService> {
  const folder = mkdtempSync(join(tmpdir(), 'longhaul-fleet-'));
  const tasks = join(folder, 'tasks');
  await promisify(execFile)(python, [join(scripts, 'tasks.py'), '--out', tasks]);
  const child = spawn(python, [join(scripts, 'service.py'), '--dir', join(folder, 'instances')], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const exit = once(child, 'exit');
  let errors = '';
  child.stderr.on('data', (chunk: Buffer) => (errors = (errors + chunk.toString()).slice(-10_000)));
  const lines = createInterface({ input: child.stdout });
  const ready = (async () => {
    for await (const line of lines) if (line.startsWith('READY ')) return line.slice('READY '.length);
    throw new Error(`the service ended before it was ready: ${errors}`);
  })();
  const deadline = setTimeout(() => child.kill('SIGKILL'), startsWithinMs);
  const url = await ready.finally(() => clearTimeout(deadline));

  const ask = async (init?: RequestInit): Promise<unknown> => {
    const answer = await fetch(`${url}/control`, init);
    if (!answer.ok) throw new Error(`the service answered ${answer.status}: ${await answer.text()}`);
    return answer.json();
  };
  return {
    url,
    key: 'test-key',
    tasks,
    async control(patch) {
      const headers = { 'content-type': 'application/json' };
      await ask({ method: 'POST', headers, body: JSON.stringify(patch) });
    },
    log: async () => (await ask()) as FleetLog,
    async stop() {
      // Its own end stops the processes of its verifiers.
      child.kill('SIGTERM');
      const kill = setTimeout(() => child.kill('SIGKILL'), 5_000);
      await exit;
      clearTimeout(kill);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
