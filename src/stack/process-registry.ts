// Children of a supervisor, on disk with pid and start time: a supervisor that was killed leaves them running, and the next one, holding
// the folder's lock, ends exactly those, and all processes with the folder's mark (R29).
import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { identityOf, isAlive, type ProcessIdentity } from '../workers/process/process-identity.js';

export interface RegisteredProcess extends ProcessIdentity {
  name: string;
}

export interface ProcessRegistryOptions {
  log(message: string): void;
  /** Pause between tries to write the list, while the disk refuses it. */
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
    this.processes = read(path, options.log);
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

  /**
   * Ends what an earlier supervisor left: SIGTERM, then SIGKILL after `graceMs`. Only under the folder's lock. `marked`: processes found
   * without the list.
   */
  async endLeftovers(
    graceMs: number,
    marked: readonly RegisteredProcess[] = [],
  ): Promise<RegisteredProcess[]> {
    const unlisted = marked.filter(({ pid }) => this.processes.every((known) => known.pid !== pid));
    const leftovers = [...this.processes, ...unlisted].filter(isAlive);
    for (const { pid } of leftovers) signal(pid, 'SIGTERM');
    const deadline = Date.now() + graceMs;
    while (leftovers.some(isAlive) && Date.now() < deadline) await delay(20);
    for (const leftover of leftovers) if (isAlive(leftover)) signal(leftover.pid, 'SIGKILL');
    this.processes = [];
    this.write();
    return leftovers;
  }

  /**
   * A full disk must not end the supervisor: its processes wait for room on their own. If it is killed meanwhile, the processes that it
   * leaves still hold the locks of their folders, and the next supervisor reads their pids there.
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

function read(path: string, log: (message: string) => void): RegisteredProcess[] {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    log(unreadable(path, (error as Error).message));
    return [];
  }
  try {
    const processes: unknown = JSON.parse(text);
    if (Array.isArray(processes) && processes.every(isRegistered)) return processes;
  } catch {
    // Cut off, or never JSON.
  }
  log(unreadable(path, 'it is no list of processes'));
  return [];
}

function unreadable(path: string, problem: string): string {
  return `${path} cannot be read (${problem}): what an earlier stack has left is looked for by its mark alone`;
}

function isRegistered(value: unknown): value is RegisteredProcess {
  if (typeof value !== 'object' || value === null) return false;
  const { name, pid, startTime } = value as Partial<Record<keyof RegisteredProcess, unknown>>;
  return (
    typeof name === 'string' && Number.isSafeInteger(pid) && Number(pid) > 1 && typeof startTime === 'string'
  );
}
