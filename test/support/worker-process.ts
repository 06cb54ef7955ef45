// A worker process of `dist/` that a test can hold at named points, cut off from Temporal, freeze, kill and start again.
import { type ChildProcess, spawn } from 'node:child_process';
import {
  closeSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { AsyncCompletionClient } from '@temporalio/client';
import { startTcpProxy, type TcpProxy } from './servers/tcp-proxy.js';
import { ended } from './servers/temporal-server.js';
import { until } from './until.js';
import { OpenActivities } from '../../src/workers/attempt/open-activities.js';

export interface WorkerPlan {
  name: string;
  /** Compiled entry script. */
  script: string;
  args: readonly string[];
  /** Folder of this process only. It is kept over a restart. */
  folder: string;
  /** `host:port` of the server. The worker reaches it through its own proxy. */
  temporal: string;
  /** Environment variables in addition to this process's. */
  env?: Readonly<Record<string, string>>;
}

export interface Ending {
  /** Exit code; null if a signal ended the process. */
  code: number | null;
  /** Time since the first signal. */
  seconds: number;
}

export class WorkerProcess {
  private child: ChildProcess | null = null;

  private constructor(
    private readonly plan: WorkerPlan,
    private readonly proxy: TcpProxy,
  ) {}

  static async start(plan: WorkerPlan): Promise<WorkerProcess> {
    const worker = new WorkerProcess(plan, await startTcpProxy(plan.temporal));
    mkdirSync(worker.points, { recursive: true });
    worker.start();
    return worker;
  }

  get name(): string {
    return this.plan.name;
  }

  get pid(): number {
    if (this.child?.pid === undefined) throw new Error(`${this.name} is not running`);
    return this.child.pid;
  }

  get log(): string {
    return readFileSync(this.logFile, 'utf8');
  }

  start(): void {
    const log = openSync(this.logFile, 'a');
    const { script, args, folder, env } = this.plan;
    this.child = spawn(
      process.execPath,
      [script, ...args, '--folder', join(folder, 'worker'), '--temporal-address', this.proxy.address],
      { stdio: ['ignore', log, log], env: { ...process.env, ...env, LONGHAUL_STOPPING_POINTS: this.points } },
    );
    closeSync(log);
  }

  /**
   * From now on the process stops when it reaches the point. `point`: name of a stopping point, with or without `.` and the activity's id.
   */
  hold(point: string): void {
    for (const name of readdirSync(this.points)) {
      if (name.startsWith(`${point}.reached.`)) rmSync(join(this.points, name));
    }
    writeFileSync(join(this.points, point), '');
  }

  letGo(point: string): void {
    rmSync(join(this.points, point), { force: true });
  }

  /** Removes all points. */
  letGoAll(): void {
    for (const name of readdirSync(this.points)) rmSync(join(this.points, name));
  }

  get isRunning(): boolean {
    return this.child?.exitCode === null && this.child.signalCode === null;
  }

  /** True if the current process waits, or has waited, at a held point. */
  hasReached(point: string): boolean {
    return existsSync(join(this.points, `${point}.reached.${this.pid}`));
  }

  /** Cuts the connection to Temporal, including open polls. The process goes on. */
  cutOff(): void {
    this.proxy.mode = 'refuse';
  }

  reconnect(): void {
    this.proxy.mode = 'pass';
  }

  /** Cuts the connection to Temporal and stops the process (SIGSTOP). */
  freeze(): void {
    this.cutOff();
    process.kill(this.pid, 'SIGSTOP');
  }

  wake(): void {
    this.reconnect();
    process.kill(this.pid, 'SIGCONT');
  }

  /** Attempts that run in this process, by the names of their files. */
  openAttempts(): string[] {
    const folder = join(this.plan.folder, 'worker', 'open-activities');
    if (!existsSync(folder)) return [];
    return readdirSync(folder).filter((name) => !name.endsWith('.returned.json'));
  }

  /** Tells the server that every attempt of this process has failed, as the successor of a dead worker does (R28). */
  async failOpenAttempts(client: AsyncCompletionClient): Promise<string[]> {
    // Uses a copy, because this worker is alive and removes its own files.
    const copy = mkdtempSync(join(tmpdir(), 'longhaul-attempts-'));
    cpSync(join(this.plan.folder, 'worker', 'open-activities'), copy, { recursive: true });
    try {
      return await new OpenActivities(copy).failPredecessors(client, () => undefined);
    } finally {
      rmSync(copy, { recursive: true });
    }
  }

  /** Pid of the engine; null if this process has none. */
  enginePid(): number | null {
    return childrenOf(this.pid).find((pid) => proc(`${pid}/cmdline`).includes('longhaul-engine')) ?? null;
  }

  /** Sends the signals (default: SIGTERM) and returns how the process ended by itself. */
  async leave(signals: NodeJS.Signals[] = ['SIGTERM'], deadlineMs = 60_000): Promise<Ending> {
    const { child } = this;
    if (!child) throw new Error(`${this.name} is not running`);
    const began = performance.now();
    for (const signal of signals) {
      child.kill(signal);
      // Two signals at the same moment would count as one.
      await delay(100);
    }
    await until(
      () => child.exitCode !== null || child.signalCode !== null,
      `${this.name} to end`,
      deadlineMs,
    );
    return { code: child.exitCode, seconds: (performance.now() - began) / 1000 };
  }

  async kill(): Promise<void> {
    if (this.child) await ended(this.child, 'SIGKILL');
    this.proxy.mode = 'pass';
  }

  async stop(): Promise<void> {
    const engine = this.isRunning ? this.enginePid() : null;
    await this.kill();
    await this.proxy.stop();
    if (engine !== null)
      await until(() => !existsSync(`/proc/${engine}`), `the engine of ${this.name} to end`);
  }

  private get points(): string {
    return join(this.plan.folder, 'points');
  }

  private get logFile(): string {
    return join(this.plan.folder, 'log');
  }
}

function childrenOf(pid: number): number[] {
  const tasks = existsSync(`/proc/${pid}/task`) ? readdirSync(`/proc/${pid}/task`) : [];
  return tasks.flatMap((task) => proc(`${pid}/task/${task}/children`).split(' ').filter(Boolean).map(Number));
}

/** Empty if the process has ended meanwhile. */
function proc(path: string): string {
  try {
    return readFileSync(`/proc/${path}`, 'utf8');
  } catch {
    return '';
  }
}
