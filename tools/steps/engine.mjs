// Builds the native engine: CMake Release, out of tree. Each checkout has its own build folder, for incremental builds. The binary is
// cached under the hash of its sources, so that going back to an older commit builds nothing.
import { copyFileSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import {
  cacheRoot,
  checkoutKey,
  contentKey,
  filesBelow,
  platformKey,
  recordToolPath,
  repository,
  withLock,
} from './cache.mjs';
import { outputOf, runLong } from './command.mjs';
import { ensureNvcc, findNvcc, isCudaWanted, versionOf } from './nvcc.mjs';
import { checkCompiler, requireCmake, requireCompiler, requireGenerator } from './prerequisites.mjs';

export const native = join(repository, 'native');

export const engineBuildFolder = join(cacheRoot, 'engine', `build-${checkoutKey}`);

/** Removes the marks of earlier builds of tests from a build folder. */
export function forgetBuilds(folder) {
  if (!existsSync(folder)) return;
  for (const name of readdirSync(folder).filter((name) => /^(tests|passed)-/.test(name)))
    rmSync(join(folder, name), { recursive: true });
}

export const buildContinues = 'Start the same command again: it continues with what is not built yet.';

/** Tests and tools of `native/` do not change the engine's binary. */
function sources() {
  return filesBelow(native).filter((path) => !/\/native\/(test|tests|tools|bench|fuzz)\//.test(path));
}

/** Path of the binary for these sources and these compilers; `nvcc` is null if it is for CPUs only. The file may not exist yet. */
function engineOf(compiler, nvcc) {
  const version = (outputOf(compiler, ['--version']) ?? '').split('\n')[0] ?? '';
  const compilers = [version, platformKey, ...(nvcc === null ? [] : [versionOf(nvcc)])];
  const scripts = nvcc === null ? [] : [join(native, 'tools/compile_cuda.sh')];
  const key = contentKey([...sources(), ...scripts], compilers);
  return { compilers, key, binary: join(cacheRoot, 'engine', key, 'longhaul-engine') };
}

/**
 * Folder that marks that the engine's tests passed with these sources and compilers. Call it after a set-up with `--tests`.
 * @returns {string}
 */
export function passedEngineTests() {
  const { compilers } = engineOf(requireCompiler(), isCudaWanted() ? findNvcc() : null);
  return join(engineBuildFolder, `passed-${contentKey([native], compilers)}`);
}

/** Fails now if the engine could not be built minutes later. The compiler is not checked if the engine is already built. */
export function checkEngineCompiler() {
  const compiler = requireCompiler();
  if (!existsSync(engineOf(compiler, isCudaWanted() ? findNvcc() : null).binary)) checkCompiler(compiler);
}

/** @returns {Promise<string>} what was done, for the set-up's table of steps */
export async function ensureEngine({ withTests = false } = {}) {
  const compiler = requireCompiler();
  const nvcc = await ensureNvcc();
  const { compilers, key, binary } = engineOf(compiler, nvcc);
  const devices = nvcc === null ? '' : ', for GPUs too';
  if (existsSync(binary) && !withTests) {
    recordToolPath('engine', binary);
    return `current${devices}`;
  }
  return withLock(`engine-${checkoutKey}`, async () => {
    const cmake = requireCmake();
    const emulated = join(engineBuildFolder, 'longhaul-engine-emulated');
    const testKey = contentKey([native], compilers);
    const testsBuilt = join(engineBuildFolder, `tests-${testKey}`);
    if (existsSync(binary) && existsSync(testsBuilt)) {
      recordToolPath('engine', binary);
      recordToolPath('engine-emulated', emulated);
      return `current${devices}`;
    }
    const generator = existsSync(join(engineBuildFolder, 'CMakeCache.txt')) ? [] : ['-G', requireGenerator()];
    await runLong(
      cmake,
      [
        '-S',
        native,
        '-B',
        engineBuildFolder,
        ...generator,
        '-DCMAKE_BUILD_TYPE=Release',
        `-DCMAKE_CXX_COMPILER=${compiler}`,
        ...(nvcc === null ? ['-DLONGHAUL_CUDA=OFF'] : ['-DLONGHAUL_CUDA=ON', `-DLONGHAUL_NVCC=${nvcc}`]),
      ],
      {
        label: 'engine configuration',
      },
    );
    // The programs of another state of the sources are about to be replaced.
    forgetBuilds(engineBuildFolder);
    const jobs = String(Math.max(1, availableParallelism()));
    const target = withTests ? [] : ['--target', 'longhaul-engine'];
    await runLong(cmake, ['--build', engineBuildFolder, '--parallel', jobs, ...target], {
      label: 'engine build',
      again: buildContinues,
    });
    const built = filesBelow(engineBuildFolder).find((path) => path.endsWith('/longhaul-engine'));
    if (built === undefined)
      throw new Error(`The build in ${engineBuildFolder} did not make longhaul-engine.`);
    mkdirSync(join(cacheRoot, 'engine', key), { recursive: true });
    copyFileSync(built, `${binary}.${process.pid}`);
    renameSync(`${binary}.${process.pid}`, binary);
    if (withTests) {
      mkdirSync(testsBuilt, { recursive: true });
      recordToolPath('engine-emulated', emulated);
    }
    recordToolPath('engine', binary);
    return `${withTests ? 'built, with its tests' : 'built'}${devices}`;
  });
}
