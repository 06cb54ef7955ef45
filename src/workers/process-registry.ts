// Children of a supervisor, on disk with pid and start time: a supervisor that was killed leaves them running, and the next
// one, holding the folder's lock, ends exactly those (R29).
import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { identityOf, isAlive, type ProcessIdentity } from './process-identity.js';

export interface RegisteredProcess extends ProcessIdentity {
  name: string;
}

export interface ProcessRegistryOptions {
  log(message: string): void;
  /** Between two tries to write the list down, where the disk does not take it. */
  retryMs?: number;
}

const defaultRetryMs = 5_000;

export class ProcessRegistry {
  private processes: RegisteredProcess[];
  private unwritten: NodeJS.Timeout | null = null;

  constructor(
    private readonly path: string,
    private readonly options: ProcessRegistryOptions,
  ) {
    mkdirSync(dirname(path), { recursive: true });
    this.processes = read(path);
  }

  /** Call right after the start: before it, a kill of the supervisor would leave the child unknown. */
  add(name: string, pid: number): void {
    const identity = identityOf(pid);
    if (!identity) return;
    this.processes = [...this.processes.filter((known) => known.pid !== pid), { name, ...identity }];
    this.write();
  }

  remove(pid: number): void {
    this.processes = this.processes.filter((known) => known.pid !== pid);
    this.write();
  }

  /** Ends what an earlier supervisor left: SIGTERM, then SIGKILL after `graceMs`. Only under the folder's lock. */
  async endLeftovers(graceMs: number): Promise<RegisteredProcess[]> {
    const leftovers = this.processes.filter(isAlive);
    for (const { pid } of leftovers) signal(pid, 'SIGTERM');
    const deadline = Date.now() + graceMs;
    while (leftovers.some(isAlive) && Date.now() < deadline) await delay(20);
    for (const leftover of leftovers) if (isAlive(leftover)) signal(leftover.pid, 'SIGKILL');
    this.processes = [];
    this.write();
    return leftovers;
  }

  /**
   * A full disk must not end the supervisor, whose processes wait for room by themselves. Where it is killed meanwhile, what it
   * leaves still holds the locks of its folders, and the next supervisor is told the pid.
   */
  private write(): void {
    const waited = this.unwritten !== null;
    if (this.unwritten) clearTimeout(this.unwritten);
    this.unwritten = null;
    try {
      const draft = `${this.path}.draft`;
      writeFileSync(draft, `${JSON.stringify(this.processes, null, 1)}\n`);
      renameSync(draft, this.path);
    } catch (error) {
      const { log, retryMs = defaultRetryMs } = this.options;
      if (!waited) log(`${this.path} cannot be written, which is tried again: ${(error as Error).message}`);
      this.unwritten = setTimeout(() => this.write(), retryMs);
      this.unwritten.unref();
    }
  }
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

function read(path: string): RegisteredProcess[] {
  try {
    const processes: unknown = JSON.parse(readFileSync(path, 'utf8'));
    return Array.isArray(processes) ? (processes as RegisteredProcess[]) : [];
  } catch {
    return [];
  }
}
