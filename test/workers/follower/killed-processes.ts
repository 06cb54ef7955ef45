// Starts followers as separate processes and kills them without warning, while the run that they follow continues.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { expect } from 'vitest';
import type { FollowerEnd } from '../../../src/workers/follower/follower.js';
import { openDirectoryStore } from '../../../src/store/objects/directory-store.js';
import { recordsOf, writeAll, type WrittenRun } from './written-run.js';

const register = fileURLToPath(new URL('../../support/preloads/typescript-register.mjs', import.meta.url));
const program = fileURLToPath(new URL('children/doomed-follower.ts', import.meta.url));
/** A process needs a second or two to begin; on a busy machine, many. */
const beginsWithinMs = 60_000;

export interface KilledOptions {
  folder: string;
  kills: number;
  run: Partial<WrittenRun>;
  /** Milliseconds from the first point of a process to its kill. */
  livesMs: (kill: number) => number;
  python?: string;
  /** Called with a process just before it is killed. */
  beforeKill?: (child: ChildProcess) => void;
}

/** Resolves when the last process has delivered the whole run. */
export async function followThroughKills(options: KilledOptions): Promise<FollowerEnd[]> {
  const { folder, kills, run, livesMs, python, beforeKill } = options;
  const root = join(folder, 'store');
  const store = await openDirectoryStore(root);
  const overFile = join(folder, 'over');
  const records = recordsOf(run);
  const total = records.length;
  const start = (): Started => startFollower([root, folder, overFile, ...(python ? [python] : [])]);
  for (let kill = 0; kill < kills; kill++) {
    const child = start();
    // Records are written while the process reads, so that it is also killed among new points, not only among old ones.
    const left = Math.floor((1 - (kill + 1) / (kills + 1)) * total);
    const writing = writeAll(store, records.splice(0, records.length - left));
    await child.heard('delivered');
    await delay(livesMs(kill));
    beforeKill?.(child.process);
    child.process.kill('SIGKILL');
    await Promise.all([child.ended, writing]);
  }
  await writeAll(store, records);
  writeFileSync(overFile, '');
  const last = start();
  await last.ended;
  expect(last.errors()).toBe('');
  return JSON.parse(last.lines().at(-1) ?? 'null') as FollowerEnd[];
}

interface Started {
  process: ChildProcess;
  ended: Promise<unknown>;
  lines: () => string[];
  errors: () => string;
  heard: (text: string) => Promise<void>;
}

function startFollower(args: string[]): Started {
  const child = spawn(process.execPath, ['--import', register, program, ...args]);
  const output = { out: '', error: '' };
  child.stdout.on('data', (piece: Buffer) => (output.out += piece.toString()));
  child.stderr.on('data', (piece: Buffer) => (output.error += piece.toString()));
  const ended = once(child, 'close');
  return {
    process: child,
    ended,
    lines: () => output.out.trim().split('\n'),
    errors: () => output.error,
    heard: async (text) => {
      const deadline = Date.now() + beginsWithinMs;
      while (!output.out.includes(text)) {
        if (child.exitCode !== null || Date.now() > deadline)
          throw new Error(`the follower did not say "${text}": ${output.out}${output.error}`);
        await delay(2);
      }
    },
  };
}
