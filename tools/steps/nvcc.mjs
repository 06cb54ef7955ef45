// The compiler for GPUs: nvcc from the PATH, else from pinned wheels that are installed in the cache. A machine needs it only if it is to
// build the engine for GPUs: LONGHAUL_CUDA=1 says so, LONGHAUL_CUDA=0 says that it is not, and otherwise an NVIDIA driver decides.
import { existsSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { cacheRoot, contentKey, platformKey, repository, withLock } from './cache.mjs';
import { findOnPath, outputOf, runLong, SetupError } from './command.mjs';

/** The first CUDA that compiles C++20. */
const oldestCuda = 12;
const requirements = join(repository, 'native/tools/nvcc-requirements.txt');
const driverFiles = [
  '/dev/nvidiactl',
  ...['/usr/lib/x86_64-linux-gnu', '/usr/lib64', '/usr/lib/wsl/lib'].map((folder) =>
    join(folder, 'libcuda.so.1'),
  ),
];

/** Whether LONGHAUL_CUDA asks for GPUs, whatever this machine has. */
const isAskedFor = () => process.env.LONGHAUL_CUDA === '1';

/** Whether the engine is to be built for GPUs. */
export function isCudaWanted() {
  return isAskedFor() || (process.env.LONGHAUL_CUDA !== '0' && driverFiles.some((path) => existsSync(path)));
}

/** Path of an nvcc that is there already, or null. */
export function findNvcc() {
  const onPath = findOnPath('nvcc');
  if (onPath !== null && Number(/release (\d+)/.exec(versionOf(onPath))?.[1] ?? 0) >= oldestCuda)
    return onPath;
  const { nvcc } = wheels();
  return existsSync(nvcc) ? nvcc : null;
}

export function versionOf(nvcc) {
  return outputOf(nvcc, ['--version']) ?? '';
}

function wheels() {
  const folder = join(cacheRoot, 'nvcc', contentKey([requirements], [platformKey]));
  return { folder, nvcc: join(folder, 'nvidia/cu13/bin/nvcc') };
}

/** Fails now if LONGHAUL_CUDA asks for an nvcc that could not be installed later. */
export function checkNvcc() {
  if (isAskedFor() && findNvcc() === null) requirePip();
}

/** A Python that has pip. */
function requirePip() {
  for (const name of [process.env.PYTHON, 'python3', 'python'])
    if (name && outputOf(name, ['-m', 'pip', '--version']) !== null) return name;
  throw new SetupError(
    'nvcc not found, and no Python 3 with pip to install it: the engine is to be built for GPUs. ' +
      'Install python3-pip, put an nvcc of CUDA 12 or newer on the PATH, or set LONGHAUL_CUDA=0 to build for CPUs only.',
  );
}

/**
 * Path of nvcc, which is installed if necessary; null if the engine is not built for GPUs. If only the driver asks for GPUs and nvcc cannot
 * be installed, it says so and returns null: the engine also works without.
 */
export async function ensureNvcc() {
  if (!isCudaWanted()) return null;
  const found = findNvcc();
  if (found !== null) return found;
  try {
    return await installNvcc();
  } catch (error) {
    if (isAskedFor() || !(error instanceof SetupError)) throw error;
    console.log(`    the engine is built for CPUs only: ${error.message}`);
    return null;
  }
}

export function installNvcc() {
  const { folder, nvcc } = wheels();
  return withLock('nvcc', async () => {
    if (existsSync(nvcc)) return nvcc;
    const python = requirePip();
    const temporary = `${folder}.${process.pid}`;
    mkdirSync(temporary, { recursive: true });
    try {
      const options = ['--no-cache-dir', '--no-deps', '--only-binary=:all:', '--require-hashes'];
      await runLong(
        python,
        ['-m', 'pip', 'install', ...options, '--target', temporary, '--requirement', requirements],
        {
          label: 'nvcc download',
          timeoutMs: 15 * 60_000,
          hint: 'Or put an nvcc of CUDA 12 or newer on the PATH, or set LONGHAUL_CUDA=0 to build for CPUs only.',
        },
      );
      renameSync(temporary, folder);
    } finally {
      rmSync(temporary, { recursive: true, force: true });
    }
    return nvcc;
  });
}
