// Identity of a process: its pid and start time. The pid alone is not enough, as the system reuses pids.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

export interface ProcessIdentity {
  pid: number;
  /** As the operating system gives it: clock ticks since boot on Linux, a date elsewhere. Only compared, never parsed. */
  startTime: string;
}

/** Null if the process does not exist or is a zombie. */
export function identityOf(pid: number): ProcessIdentity | null {
  const startTime = process.platform === 'linux' ? startTimeFromProc(pid) : startTimeFromPs(pid);
  return startTime === null ? null : { pid, startTime };
}

export function isAlive(identity: ProcessIdentity): boolean {
  return identityOf(identity.pid)?.startTime === identity.startTime;
}

export function ownIdentity(): ProcessIdentity {
  const identity = identityOf(process.pid);
  if (!identity) throw new Error(`the start time of process ${process.pid} cannot be read`);
  return identity;
}

function startTimeFromProc(pid: number): string | null {
  let line: string;
  try {
    line = readFileSync(`/proc/${pid}/stat`, 'utf8');
  } catch {
    return null;
  }
  // The second field is the command in parentheses and may hold spaces and parentheses itself.
  const fields = line.slice(line.lastIndexOf(')') + 2).split(' ');
  const [state, startTime] = [fields[0], fields[19]];
  return state === 'Z' || state === 'X' ? null : (startTime ?? null);
}

function startTimeFromPs(pid: number): string | null {
  try {
    const started = execFileSync('ps', ['-o', 'lstart=', '-p', String(pid)], { encoding: 'utf8' }).trim();
    return started === '' ? null : started;
  } catch {
    return null;
  }
}
