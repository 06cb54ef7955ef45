// The list, on disk, of a supervisor's children with pid and start time. A killed supervisor leaves its children running. The next
// supervisor, which holds the folder's lock, ends the listed children, and all other processes with the folder's mark (R29).
import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { identityOf, isAlive, type ProcessIdentity } from '../workers/process/process-identity.js';

export interface RegisteredProcess extends ProcessIdentity {
  name: string;
}

interface ProcessRegistryOptions {
  log(message: string): void;
  /** Pause before the next try when the list cannot be written. */
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

  /** Call right after the child's start: if the supervisor is killed before this call, the list lacks the child. */
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
   * Ends processes that an earlier supervisor left: SIGTERM, then SIGKILL after `graceMs`. Call only while the folder is locked. `marked`:
   * processes found by the folder's mark, which the list may lack.
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
   * A full disk does not end the supervisor: the write is tried again later. If the supervisor is killed before that, the next one still
   * finds the processes by the folder's mark, or by the locks of their folders.
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
      if (!waited) log(`${this.path} cannot be written and is tried again: ${(error as Error).message}`);
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
    // The file was cut off, or is not JSON.
  }
  log(unreadable(path, 'it is not a list of processes'));
  return [];
}

function unreadable(path: string, problem: string): string {
  return `${path} cannot be read (${problem}): processes of an earlier stack are found only by their mark`;
}

function isRegistered(value: unknown): value is RegisteredProcess {
  if (typeof value !== 'object' || value === null) return false;
  const { name, pid, startTime } = value as Partial<Record<keyof RegisteredProcess, unknown>>;
  return (
    typeof name === 'string' && Number.isSafeInteger(pid) && Number(pid) > 1 && typeof startTime === 'string'
  );
}
