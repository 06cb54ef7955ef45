// Makes a Python environment with pinned packages in the cache, once for each list of requirements.
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
/** On a slow line pip took 2 minutes. */
const makingLimitMs = 300_000;

export type PythonVenv = { python: string } | { skipped: string };

/**
 * Path of the interpreter, or the reason why there is none: this Python is not installed, or the packages cannot be installed. `version`:
 * version of Python. `uv`: version of uv to use instead of pip; it installs gigabytes of packages in a minute.
 */
export async function ensurePythonVenv(
  requirements: readonly string[],
  { version = '3.11', uv }: { version?: string; uv?: string } = {},
): Promise<PythonVenv> {
  const cache = process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache');
  const key = createHash('sha256').update(requirements.join('\n')).digest('hex').slice(0, 16);
  const folder = join(cache, 'longhaul', 'venvs', key);
  const python = join(folder, 'bin', 'python');
  if (existsSync(join(folder, 'complete'))) return { python };
  const interpreter = await findPython(version);
  if (!interpreter) return { skipped: `python${version} is not installed` };
  // One test file makes the environment, and the others wait.
  const lock = `${folder}.lock`;
  mkdirSync(join(cache, 'longhaul', 'venvs'), { recursive: true });
  const deadline = Date.now() + makingLimitMs;
  while (!tryLock(lock)) {
    if (existsSync(join(folder, 'complete'))) return { python };
    if (Date.now() > deadline)
      return { skipped: `${lock} is held by another process; remove it if none runs` };
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
  try {
    if (existsSync(join(folder, 'complete'))) return { python };
    const limits = { timeout: makingLimitMs, maxBuffer: 1 << 26 };
    await run(interpreter, ['-m', 'venv', '--clear', folder], limits);
    const pip = (...packages: string[]) =>
      run(python, ['-m', 'pip', 'install', '--quiet', ...packages], limits);
    if (uv === undefined) await pip(...requirements);
    else {
      await pip(`uv==${uv}`);
      await run(
        python,
        ['-m', 'uv', 'pip', 'install', '--quiet', '--python', python, ...requirements],
        limits,
      );
    }
    writeFileSync(join(folder, 'complete'), requirements.join('\n'));
    return { python };
  } catch (error) {
    const detail = error instanceof Error ? error.message.split('\n').slice(-3).join(' ') : String(error);
    return { skipped: `${requirements.join(', ')} cannot be installed: ${detail}` };
  } finally {
    rmSync(lock, { recursive: true, force: true });
  }
}

/** Looks into pyenv's folder, because pyenv's own commands know only the versions that it has selected. */
async function findPython(version: string): Promise<string | null> {
  const versions = join(process.env.PYENV_ROOT ?? join(homedir(), '.pyenv'), 'versions');
  const ofPyenv = (existsSync(versions) ? readdirSync(versions) : [])
    .filter((name) => name.startsWith(`${version}.`))
    .map((name) => join(versions, name, 'bin', 'python'));
  for (const candidate of [`python${version}`, ...ofPyenv])
    if (await run(candidate, ['--version']).catch(() => undefined)) return candidate;
  return null;
}

/** A lock that is older than the time limit was left by a killed process. */
function tryLock(lock: string): boolean {
  try {
    mkdirSync(lock);
    return true;
  } catch {
    const age = existsSync(lock) ? Date.now() - statSync(lock).mtimeMs : 0;
    if (age > makingLimitMs) rmSync(lock, { recursive: true, force: true });
    return false;
  }
}
