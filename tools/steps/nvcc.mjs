// The compiler for GPUs: nvcc from the PATH, else from pinned wheels that are installed in the cache. A machine needs it only if it is to
// build the engine for GPUs.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { cacheRoot, contentKey, platformKey, repository, withLock } from './cache.mjs';
import { findOnPath, outputOf, runLong, SetupError } from './command.mjs';
import { requireCompiler } from './prerequisites.mjs';

/** The first CUDA that compiles C++20. */
const oldestCuda = 12;
const requirements = join(repository, 'native/tools/nvcc-requirements.txt');

/** Whether the engine is to be built for GPUs: LONGHAUL_CUDA says so (1) or not (0); without it, if there is an NVIDIA driver. */
export function isCudaWanted(said = process.env.LONGHAUL_CUDA ?? '', driver = '/proc/driver/nvidia/version') {
  if (said === '') return existsSync(driver);
  if (said === '0' || said === '1') return said === '1';
  throw new SetupError(
    `LONGHAUL_CUDA is ${said}; it must be 1 (build the engine for GPUs too) or 0 (for CPUs only).`,
  );
}

/** Path of an nvcc that is there already, or null. */
export function findNvcc() {
  const onPath = findOnPath('nvcc');
  if (onPath !== null && isFit(onPath)) return onPath;
  const { nvcc } = wheels();
  return existsSync(nvcc) ? nvcc : null;
}

const fit = new Map();

function isFit(nvcc) {
  if (!fit.has(nvcc))
    fit.set(nvcc, Number(/release (\d+)/.exec(versionOf(nvcc))?.[1] ?? 0) >= oldestCuda && compiles(nvcc));
  return fit.get(nvcc);
}

/** Whether it accepts the compiler beside it: each CUDA refuses compilers that are newer than itself. */
function compiles(nvcc) {
  const folder = mkdtempSync(join(tmpdir(), 'longhaul-nvcc-'));
  try {
    const source = join(folder, 'probe.cu');
    writeFileSync(source, '#include <concepts>\n__global__ void probe() {}\n');
    const options = ['-ccbin', requireCompiler(), '-std=c++20', '-gencode=arch=compute_90,code=sm_90'];
    const { status } = spawnSync(nvcc, [...options, '-c', source, '-o', join(folder, 'probe.o')], {
      stdio: 'ignore',
      timeout: 60_000,
    });
    return status === 0;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

export function versionOf(nvcc) {
  return outputOf(nvcc, ['--version']) ?? '';
}

function wheels() {
  const folder = join(cacheRoot, 'nvcc', contentKey([requirements], [platformKey]));
  return { folder, nvcc: join(folder, 'nvidia/cu13/bin/nvcc') };
}

/** Fails now if an nvcc is wanted that could not be installed later. */
export function checkNvcc() {
  if (isCudaWanted() && findNvcc() === null) requirePip();
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

/** Path of nvcc, which is installed if necessary; null if the engine is not built for GPUs. */
export async function ensureNvcc() {
  if (!isCudaWanted()) return null;
  return findNvcc() ?? (await installNvcc());
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
