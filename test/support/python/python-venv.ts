// Makes a Python environment with pinned packages in the cache, once for each list of requirements.
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { runWithSilenceLimit } from './silence-limit.js';
import { exclusively } from '../exclusively.js';

export interface PythonEnvironment {
  requirements: readonly string[];
  /** Version of Python; default: 3.11. */
  version?: string;
  /** Version of uv to use instead of pip: it installs gigabytes of packages in a minute. */
  uv?: string;
}

/** Path of the interpreter, or the reason why there is none: this Python is not installed, or the packages cannot be installed. */
export type PythonVenv = { python: string } | { skipped: string };

export async function ensurePythonVenv({
  requirements,
  version = '3.11',
  uv,
}: PythonEnvironment): Promise<PythonVenv> {
  const venvs = join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'longhaul', 'venvs');
  const key = createHash('sha256').update(requirements.join('\n')).digest('hex').slice(0, 16);
  const folder = join(venvs, key);
  const python = join(folder, 'bin', 'python');
  const complete = join(folder, 'complete');
  if (existsSync(complete)) return { python };
  const interpreter = await findPython(version);
  if (!interpreter) return { skipped: `python${version} is not installed` };
  mkdirSync(venvs, { recursive: true });
  // One test file makes the environment, and the others wait.
  return exclusively(`${folder}.installing`, async () => {
    if (existsSync(complete)) return { python };
    try {
      await runWithSilenceLimit(interpreter, ['-m', 'venv', '--clear', folder]);
      await install(python, requirements, uv);
    } catch (error) {
      const detail = error instanceof Error ? error.message : String(error);
      return { skipped: `${requirements.join(', ')} cannot be installed: ${detail}` };
    }
    writeFileSync(complete, requirements.join('\n'));
    return { python };
  });
}

async function install(
  python: string,
  requirements: readonly string[],
  uv: string | undefined,
): Promise<void> {
  const pip = (...packages: string[]) =>
    runWithSilenceLimit(python, ['-m', 'pip', 'install', '--disable-pip-version-check', ...packages]);
  if (uv === undefined) return pip(...requirements);
  await pip(`uv==${uv}`);
  return runWithSilenceLimit(python, ['-m', 'uv', 'pip', 'install', '--python', python, ...requirements]);
}

/** Looks into pyenv's folder, because pyenv's own commands know only the versions that it has selected. */
async function findPython(version: string): Promise<string | null> {
  const run = promisify(execFile);
  const versions = join(process.env.PYENV_ROOT ?? join(homedir(), '.pyenv'), 'versions');
  const ofPyenv = (existsSync(versions) ? readdirSync(versions) : [])
    .filter((name) => name.startsWith(`${version}.`))
    .map((name) => join(versions, name, 'bin', 'python'));
  for (const candidate of [`python${version}`, ...ofPyenv])
    if (await run(candidate, ['--version']).catch(() => undefined)) return candidate;
  return null;
}
