// Around a whole test run: a note when compiled code is out of date, and a search for processes that a test left behind.
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { randomBytes } from 'node:crypto';

const mark = 'LONGHAUL_TEST_RUN';

export default function setup(): () => void {
  // Every process below this one inherits the mark, however deep.
  const id = randomBytes(8).toString('hex');
  process.env[mark] = id;
  warnOfStaleBuild();
  return () => endLeftovers(id);
}

/** Tests of whole processes start `dist/`; sources newer than it would go untested. */
function warnOfStaleBuild(): void {
  const stamp = 'dist/.tsbuildinfo';
  if (!existsSync(stamp)) {
    console.warn('dist/ is missing: tests that start whole processes need `npm run build` first.');
    return;
  }
  const built = statSync(stamp).mtimeMs;
  const newer = readdirSync('src', { recursive: true, encoding: 'utf8' }).filter(
    (name) => name.endsWith('.ts') && statSync(join('src', name)).mtimeMs > built,
  );
  if (newer.length > 0)
    console.warn(`dist/ is older than ${newer[0]}: run \`npm run build\`, or tests run old code.`);
}

/** A leaked server holds ports and memory of all later runs, so a leak fails the run. Linux only: elsewhere nothing is checked. */
function endLeftovers(id: string): void {
  if (!existsSync('/proc/self/environ')) return;
  const leftovers = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .filter((pid) => carriesMark(pid, id) && !isVitest(pid))
    .map((pid) => ({ pid: Number(pid), command: commandLine(pid) }));
  for (const { pid } of leftovers) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // It has ended by itself.
    }
  }
  if (leftovers.length === 0) return;
  const list = leftovers.map(({ pid, command }) => `  ${pid} ${command}`).join('\n');
  throw new Error(`Tests left processes behind; each test must stop what it starts:\n${list}`);
}

function carriesMark(pid: string, id: string): boolean {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'utf8').includes(`${mark}=${id}`);
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
