// A command that is ended if it prints nothing for a long time. How long all of it takes says nothing, because the machine may be busy.
import { type ChildProcess, spawn } from 'node:child_process';

const defaultSilenceMs = 10 * 60_000;

/** Rejects with the end of the output if the command fails or falls silent. */
export function runWithSilenceLimit(
  command: string,
  args: readonly string[],
  silenceMs = defaultSilenceMs,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      stdio: ['ignore', 'pipe', 'pipe'],
      // Python would hold back its output, as it is not a terminal's.
      env: { ...process.env, PYTHONUNBUFFERED: '1' },
      // A process group of its own, so that it can be ended with all that it has started.
      detached: true,
    });
    let output = '';
    let isSilent = false;
    const limit = setTimeout(() => {
      isSilent = true;
      endGroup(child);
    }, silenceMs);
    const hear = (chunk: Buffer): void => {
      output = (output + chunk.toString()).slice(-10_000);
      limit.refresh();
    };
    child.stdout.on('data', hear);
    child.stderr.on('data', hear);
    const settle = (problem: string | null): void => {
      clearTimeout(limit);
      const end = output.trim().split('\n').slice(-3).join(' ');
      if (problem === null) resolve();
      else reject(new Error(`${[command, ...args.slice(0, 2)].join(' ')} ${problem}: ${end}`));
    };
    child.on('error', (error) => settle(`did not start: ${error.message}`));
    child.on('close', (code, signal) => {
      if (isSilent) settle(`printed nothing for ${silenceMs / 1000} s and was ended`);
      else settle(code === 0 ? null : `ended with ${code ?? signal}`);
    });
  });
}

function endGroup({ pid }: ChildProcess): void {
  try {
    if (pid !== undefined) process.kill(-pid, 'SIGKILL');
  } catch {
    // All its processes have ended at this moment.
  }
}
