// Before a whole test run: says if compiled code is out of date, and makes the folder that files share. After it: ends the processes that are
// left, and fails if a test should have ended one of them.
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { randomBytes } from 'node:crypto';
import { compiledThreads, folderVariable, runMark, sharedMark } from './test-run.js';

export default function setup(): () => void {
  // All descendants of this process inherit the mark.
  const id = randomBytes(8).toString('hex');
  process.env[runMark] = id;
  const folder = mkdtempSync(join(tmpdir(), 'longhaul-test-run-'));
  process.env[folderVariable] = folder;
  if (isBuildCurrent()) process.env[compiledThreads] = 'yes';
  return () => {
    try {
      endLeftovers(id);
    } finally {
      rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
    }
  };
}

/** Tests of whole processes start `dist/`. If sources are newer, they would not be tested: warns. */
function isBuildCurrent(): boolean {
  const stamp = 'dist/.tsbuildinfo';
  if (!existsSync(stamp)) {
    console.warn('dist/ is missing: tests that start whole processes need `npm run build` first.');
    return false;
  }
  const built = statSync(stamp).mtimeMs;
  const newer = readdirSync('src', { recursive: true, encoding: 'utf8' }).filter(
    (name) => name.endsWith('.ts') && statSync(join('src', name)).mtimeMs > built,
  );
  if (newer.length > 0)
    console.warn(`dist/ is older than ${newer[0]}: run \`npm run build\`, or tests run old code.`);
  return newer.length === 0;
}

/**
 * Ends what is left. A leaked server keeps ports and memory from all later runs, so a leak fails the run, unless files share the process.
 * Only Linux can check this.
 */
function endLeftovers(id: string): void {
  if (!existsSync('/proc/self/environ')) return;
  const leftovers = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .filter((pid) => carries(pid, runMark, id) && !isVitest(pid))
    .map((pid) => ({
      pid: Number(pid),
      command: commandLine(pid),
      isShared: carries(pid, sharedMark, 'yes'),
    }));
  for (const { pid } of leftovers) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // The process has ended by itself.
    }
  }
  const leaked = leftovers.filter(({ isShared }) => !isShared);
  if (leaked.length === 0) return;
  const list = leaked.map(({ pid, command }) => `  ${pid} ${command}`).join('\n');
  throw new Error(`Tests left processes behind; each test must stop what it starts:\n${list}`);
}

function carries(pid: string, variable: string, value: string): boolean {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'utf8').includes(`${variable}=${value}`);
  } catch {
    return false;
  }
}

function isVitest(pid: string): boolean {
  return /vitest|esbuild/.test(commandLine(pid));
}

function commandLine(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').trim().slice(0, 120);
  } catch {
    return '';
  }
}
