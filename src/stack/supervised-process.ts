// One process of the stack: started, health-checked, logged to a file, started again whenever it dies.
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
  /** The complete environment: nothing is inherited from the supervisor. */
  env: NodeJS.ProcessEnv;
  logFile: string;
  /** True when it serves. Called again and again until the deadline. */
  healthy(pid: number): Promise<boolean>;
  startDeadlineMs: number;
  /** SIGTERM to SIGKILL. */
  stopGraceMs: number;
  /** Pause between a death and the next start: doubled from the first to the longest. */
  restartPauseMs?: { first: number; longest: number };
}

export interface ProcessEvents {
  registry: ProcessRegistry;
  log(message: string): void;
  /** Called when the process dies at each start: it is not started again. */
  gaveUp(error: Error): void;
}

const defaultPauseMs = { first: 100, longest: 5_000 };
/** A process that lived this long was well: the next restart is quick again. */
const wellAfterMs = 20_000;
/** Deaths one after another, each before the process was healthy, after which a person has to look. */
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

  /** Null while none runs: the pid of an ended process may be reused by now. */
  get pid(): number | null {
    return this.child && !hasEnded(this.child) ? (this.child.pid ?? null) : null;
  }

  /** Resolves when the process serves; rejects with the end of its log if it does not. */
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
    // A process that never serves is ended, so that the next start is a clean one; its exit event starts that.
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
    // A session of its own: Ctrl-C in the terminal reaches only the supervisor, which stops the others in order.
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
    // A process that waits for something external is restarted without limit.
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
      // No exit event leads to the next start; the missing resource (room for a log, a free descriptor) is no fault of the process.
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

/** Log lines are JSON; people want the message. */
function readableLine(line: string): string {
  try {
    const { message, msg } = JSON.parse(line) as { message?: string; msg?: string };
    return `  ${message ?? msg ?? line}`;
  } catch {
    return `  ${line}`;
  }
}
