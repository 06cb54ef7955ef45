// One quickstart by the real command, in a folder of its own. Its folder stays for the measurements that read it.
import { spawn } from 'node:child_process';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { QuickstartResult } from '../src/cli/train/quickstart-command.js';
import { repository } from './repository.js';

export interface QuickstartRun {
  folder: string;
  result: QuickstartResult;
}

const deadlineMs = 25 * 60_000;

export async function runQuickstart(seed: number): Promise<QuickstartRun> {
  const folder = await mkdtemp(join(tmpdir(), `longhaul-bench-seed${seed}-`));
  const args = ['quickstart', '--json', '--seed', String(seed), '--folder', folder];
  const output = await outputOf(join(repository, 'bin/longhaul'), args, deadlineMs);
  const last = output.trim().split('\n').at(-1) ?? '';
  return { folder, result: JSON.parse(last) as QuickstartResult };
}

/** Standard output of a command; its standard error passes through. Rejects unless it exits with 0. */
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
