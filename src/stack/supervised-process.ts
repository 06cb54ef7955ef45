// One process of the stack: starts it, checks its health, logs to a file, and starts it again when it dies.
import { backoffMs } from '../base/backoff.js';
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { waitsForOthers } from '../workers/process/worker-exit.js';
import { ProcessLog } from './process-log.js';
import type { ProcessRegistry } from './process-registry.js';

export interface ProcessPlan {
  name: string;
  command: string;
  args: readonly string[];
  /** The command as a person typed it, for errors; absent for our own processes. */
  typed?: string;
  /** The complete environment: the process inherits nothing from the supervisor. */
  env: NodeJS.ProcessEnv;
  logFile: string;
  /** Whether the process serves. Called repeatedly until the deadline. */
  healthy(pid: number): Promise<boolean>;
  startDeadlineMs: number;
  /** Time from SIGTERM to SIGKILL. */
  stopGraceMs: number;
  /** Pause between a death and the next start; it doubles from `first` up to `longest`. */
  restartPauseMs?: { first: number; longest: number };
}

export interface ProcessEvents {
  registry: ProcessRegistry;
  log(message: string): void;
  /** Called when too many starts have failed in a row; the process is not started again. */
  gaveUp(error: Error): void;
}

const defaultPauseMs = { first: 100, longest: 5_000 };
/** A process that lived this long was healthy: its earlier failed starts no longer count, and the next pause is short. */
const wellAfterMs = 20_000;
/** How often the log is searched for what a process waits for. */
const lookEveryMs = 500;
/** After more failed starts in a row than this, a person must look. */
const maxFailedStarts = 8;

interface Start {
  child: ChildProcess;
  written: ProcessLog;
  /** What the process waits for, according to its own log. */
  waitsFor: string | null;
}

export class SupervisedProcess {
  restarts = 0;
  private child: ChildProcess | null = null;
  private stopping = false;
  private failedStarts = 0;
  private waiting = false;

  constructor(
    private readonly plan: ProcessPlan,
    private readonly events: ProcessEvents,
  ) {}

  get name(): string {
    return this.plan.name;
  }

  /** Null if the process does not run: the system may have reused its pid. */
  get pid(): number | null {
    return this.child && !hasEnded(this.child) ? (this.child.pid ?? null) : null;
  }

  /** Resolves when the process serves. Rejects with the end of its log if it ends or misses its deadline. */
  async start(): Promise<void> {
    await this.untilServing(this.spawn());
  }

  private async untilServing(start: Start): Promise<void> {
    const { child } = start;
    const deadline = Date.now() + this.plan.startDeadlineMs;
    let pause = 25;
    while (child.pid !== undefined && Date.now() < deadline) {
      if (hasEnded(child) || this.child !== child) break;
      if (await this.plan.healthy(child.pid).catch(() => false)) {
        this.failedStarts = 0;
        return;
      }
      await delay(pause);
      pause = Math.min(pause * 1.3, 250);
    }
    if (this.stopping) return;
    const why = this.whyNot(start);
    // End a process that never serves: its exit event starts it again.
    if (!hasEnded(child)) child.kill('SIGKILL');
    throw new Error(why);
  }

  async stop(): Promise<void> {
    this.stopping = true;
    const { child } = this;
    if (!child || hasEnded(child)) return;
    const exit = new Promise<void>((resolve) => child.once('exit', () => resolve()));
    child.kill('SIGTERM');
    const killer = setTimeout(() => child.kill('SIGKILL'), this.plan.stopGraceMs);
    await exit;
    clearTimeout(killer);
  }

  private spawn(): Start {
    const log = openSync(this.plan.logFile, 'a');
    const startedAt = Date.now();
    const written = new ProcessLog(this.plan.logFile);
    // `detached` gives the child its own session: Ctrl-C then reaches only the supervisor, which stops its children in order.
    const child = spawn(this.plan.command, this.plan.args, {
      detached: true,
      stdio: ['ignore', log, log],
      env: this.plan.env,
    });
    closeSync(log);
    this.child = child;
    const start: Start = { child, written, waitsFor: null };
    if (child.pid !== undefined) this.events.registry.add(this.plan.name, child.pid);
    let over = false;
    const sayWaits = (): void => {
      if (over || this.stopping) return;
      for (const wait of written.newWaits()) {
        start.waitsFor = wait;
        this.events.log(`${this.name} waits: ${wait}`);
      }
    };
    const look = setInterval(sayWaits, lookEveryMs);
    look.unref();
    const end = (how: string, waits = false): void => {
      if (over) return;
      sayWaits();
      over = true;
      clearInterval(look);
      if (child.pid !== undefined) this.events.registry.remove(child.pid);
      if (!this.stopping) void this.restart(how, Date.now() - startedAt, waits, written);
    };
    child.once('error', (error) => end(error.message));
    child.once('exit', (code, signal) =>
      end(signal ? `was killed by ${signal}` : `exited with ${code}`, code === waitsForOthers),
    );
    return start;
  }

  private async restart(how: string, livedMs: number, waits: boolean, written: ProcessLog): Promise<void> {
    this.failedStarts = livedMs > wellAfterMs ? 1 : this.failedStarts + 1;
    // A process that waits for something external (`waitsForOthers`) is restarted without limit.
    if (waits) this.failedStarts = Math.min(this.failedStarts, maxFailedStarts);
    if (this.failedStarts > maxFailedStarts) {
      this.events.gaveUp(
        new Error(`${this.name} ${how}, ${this.failedStarts} times in a row.\n${written.tail()}`),
      );
      return;
    }
    if (waits && !this.waiting) this.events.log(`${this.name} waits:\n${written.tail()}`);
    this.waiting = waits;
    const { first, longest } = this.plan.restartPauseMs ?? defaultPauseMs;
    await delay(backoffMs(this.failedStarts, [first, longest]));
    if (this.stopping) return;
    let start: Start;
    try {
      start = this.spawn();
    } catch (error) {
      // No exit event will follow, so start again here. A lack of disk space or file descriptors is not the process's fault.
      if (!this.waiting) this.events.log(`${this.name} cannot be started yet: ${(error as Error).message}`);
      this.waiting = true;
      void this.restart(how, 0, true, written);
      return;
    }
    this.restarts += 1;
    if (!waits) this.events.log(`${this.name} ${how}; started again`);
    await this.untilServing(start).then(
      () => (this.waiting = false),
      (error: unknown) => {
        if (!waits) this.events.log((error as Error).message);
      },
    );
  }

  private whyNot({ child, written, waitsFor }: Start): string {
    const seconds = Math.round(this.plan.startDeadlineMs / 1000);
    const where = `log: ${this.plan.logFile}`;
    if (hasEnded(child) || child.pid === undefined) {
      const code = child.exitCode === null ? '' : `exit code ${child.exitCode}; `;
      const { typed } = this.plan;
      const command = typed === undefined ? '' : `\n  command: ${typed}, in ${process.cwd()}`;
      return `${this.name} ended before it served (${code}${where}).${command}\n${written.tail()}`;
    }
    return waitsFor === null
      ? `${this.name} did not serve in time (${seconds} s allowed; ${where}).\n${written.tail()}`
      : `${waitsFor}\n${this.name} has waited for ${seconds} s (${where})`;
  }
}

function hasEnded(child: ChildProcess): boolean {
  return child.exitCode !== null || child.signalCode !== null;
}
