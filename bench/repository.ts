// Finds the checkout's root, both from the sources and from `dist/dev/`, and runs commands in it.
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const repository = rootOf(dirname(fileURLToPath(import.meta.url)));

/** Standard output of a command; its standard error is passed on. Rejects if the exit code is not 0. */
export async function outputOf(command: string, args: string[], timeoutMs: number): Promise<string> {
  const { code, output } = await runCommand(command, args, timeoutMs);
  if (code !== 0)
    throw new Error(`${[command, ...args].join(' ')} ended with ${code}: ${output.slice(-400).trim()}`);
  return output;
}

export async function runCommand(
  command: string,
  args: string[],
  timeoutMs: number,
): Promise<{ code: number | string; output: string }> {
  const child = spawn(command, args, { cwd: repository, stdio: ['ignore', 'pipe', 'inherit'] });
  const forward = (signal: NodeJS.Signals) => (): void => void child.kill(signal);
  const handlers = (['SIGINT', 'SIGTERM'] as const).map((name) => [name, forward(name)] as const);
  for (const [name, handler] of handlers) process.on(name, handler);
  const timer = setTimeout(() => child.kill('SIGTERM'), timeoutMs);
  const chunks: Buffer[] = [];
  child.stdout.on('data', (chunk: Buffer) => chunks.push(chunk));
  try {
    const code = await new Promise<number | string>((resolve, reject) => {
      child.once('error', reject);
      child.once('close', (exit, signal) => resolve(exit ?? signal ?? 'no code'));
    });
    return { code, output: Buffer.concat(chunks).toString('utf8') };
  } finally {
    clearTimeout(timer);
    for (const [name, handler] of handlers) process.off(name, handler);
  }
}

function rootOf(folder: string): string {
  if (existsSync(join(folder, 'package-lock.json'))) return folder;
  if (folder === dirname(folder)) throw new Error('the benchmarks are not in a checkout of Longhaul');
  return rootOf(dirname(folder));
}
