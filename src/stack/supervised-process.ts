// One process of the stack: starts it, checks its health, logs to a file, and starts it again when it dies.
import { backoffMs } from '../base/backoff.js';
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { waitsForOthers } from '../workers/process/worker-exit.js';
import type { ProcessRegistry } from './process-registry.js';

export interface ProcessPlan {
  name: string;
  command: string;
  args: readonly string[];
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
/** After more failed starts in a row than this, a person must look. */
const maxFailedStarts = 8;

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

  private async untilServing(child: ChildProcess): Promise<void> {
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
    const why = this.whyNot(child);
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

  private spawn(): ChildProcess {
    const log = openSync(this.plan.logFile, 'a');
    const startedAt = Date.now();
    // `detached` gives the child its own session: Ctrl-C then reaches only the supervisor, which stops its children in order.
    const child = spawn(this.plan.command, this.plan.args, {
      detached: true,
      stdio: ['ignore', log, log],
      env: this.plan.env,
    });
    closeSync(log);
    this.child = child;
    if (child.pid !== undefined) this.events.registry.add(this.plan.name, child.pid);
    let over = false;
    const end = (how: string, waits = false): void => {
      if (over) return;
      over = true;
      if (child.pid !== undefined) this.events.registry.remove(child.pid);
      if (!this.stopping) void this.restart(how, Date.now() - startedAt, waits);
    };
    child.once('error', (error) => end(error.message));
    child.once('exit', (code, signal) =>
      end(signal ? `was killed by ${signal}` : `exited with ${code}`, code === waitsForOthers),
    );
    return child;
  }

  private async restart(how: string, livedMs: number, waits: boolean): Promise<void> {
    this.failedStarts = livedMs > wellAfterMs ? 1 : this.failedStarts + 1;
    // A process that waits for something external (`waitsForOthers`) is restarted without limit.
    if (waits) this.failedStarts = Math.min(this.failedStarts, maxFailedStarts);
    if (this.failedStarts > maxFailedStarts) {
      this.events.gaveUp(
        new Error(`${this.name} ${how}, ${this.failedStarts} times in a row.\n${this.tail()}`),
      );
      return;
    }
    if (waits && !this.waiting) this.events.log(`${this.name} waits:\n${this.tail()}`);
    this.waiting = waits;
    const { first, longest } = this.plan.restartPauseMs ?? defaultPauseMs;
    await delay(backoffMs(this.failedStarts, [first, longest]));
    if (this.stopping) return;
    let child: ChildProcess;
    try {
      child = this.spawn();
    } catch (error) {
      // No exit event will follow, so start again here. A lack of disk space or file descriptors is not the process's fault.
      if (!this.waiting) this.events.log(`${this.name} cannot be started yet: ${(error as Error).message}`);
      this.waiting = true;
      void this.restart(how, 0, true);
      return;
    }
    this.restarts += 1;
    if (!waits) this.events.log(`${this.name} ${how}; started again`);
    await this.untilServing(child).then(
      () => (this.waiting = false),
      (error: unknown) => {
        if (!waits) this.events.log((error as Error).message);
      },
    );
  }

  private whyNot(child: ChildProcess): string {
    const what =
      hasEnded(child) || child.pid === undefined ? 'ended before it served' : 'did not serve in time';
    return `${this.name} ${what} (${Math.round(this.plan.startDeadlineMs / 1000)} s allowed; log: ${this.plan.logFile}).\n${this.tail()}`;
  }

  private tail(): string {
    try {
      return readFileSync(this.plan.logFile, 'utf8')
        .trimEnd()
        .split('\n')
        .slice(-5)
        .map(readableLine)
        .join('\n');
    } catch {
      return '';
    }
  }
}

function hasEnded(child: ChildProcess): boolean {
  return child.exitCode !== null || child.signalCode !== null;
}

/** The message of a JSON log line; other lines unchanged. */
function readableLine(line: string): string {
  try {
    const { message, msg } = JSON.parse(line) as { message?: string; msg?: string };
    return `  ${message ?? msg ?? line}`;
  } catch {
    return `  ${line}`;
  }
}
