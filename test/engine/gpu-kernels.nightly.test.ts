// The GPU kernels as nvcc compiles them: they build, and check_ptx.sh passes them and refuses kernels that would not have the CPU's bits.
// No GPU is needed.
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const run = promisify(execFile);
const native = fileURLToPath(new URL('../../native', import.meta.url));

const steps = (await import(new URL('../../tools/steps/nvcc.mjs', import.meta.url).href)) as {
  isCudaWanted: () => boolean;
  findNvcc: () => string | null;
  ensureNvcc: () => Promise<string | null>;
};
const nvcc = steps.isCudaWanted() ? await steps.ensureNvcc() : steps.findNvcc();
if (nvcc === null)
  console.warn(
    'skipped: the GPU kernels are not compiled, since there is no nvcc. LONGHAUL_CUDA=1 installs one (105 MB).',
  );

describe.skipIf(nvcc === null)('the GPU kernels', () => {
  let folder: string;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'gpu-kernels-'));
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  /** What the check prints, and its exit code. */
  const check = (kernels: string) =>
    run('bash', [join(native, 'tools/check_ptx.sh'), kernels]).then(
      ({ stdout }) => ({ code: 0, said: stdout }),
      (error: { code: number; stderr: string }) => ({ code: error.code, said: error.stderr }),
    );

  test('compile for A100 and H100, link without other libraries of CUDA, and keep to IEEE arithmetic and registers', async () => {
    const build = join(folder, 'build');
    await run('cmake', ['-S', native, '-B', build, '-DLONGHAUL_CUDA=ON', `-DLONGHAUL_NVCC=${nvcc}`]);
    await run('cmake', ['--build', build, '--parallel', '2', '--target', 'gpu_backend_test'], {
      maxBuffer: 1 << 26,
    });
    const { code, said } = await check(join(build, 'cuda_kernels'));
    expect({ code, said }).toEqual({ code: 0, said: expect.stringMatching(/: [1-9]\d+ kernels, IEEE/) });
    const { stdout: libraries } = await run('ldd', [join(build, 'gpu_backend_test')]);
    expect(libraries).toContain('libc.so');
    expect(libraries).not.toMatch(/cuda|cublas|nvrtc/i);
  });

  test.each([
    {
      fault: 'a contracted sum',
      kernel: 'float* x, float a',
      body: 'x[0] = x[1] * a + x[2]; x[3] = x[4] + a;',
      flags: ['-fmad=true'],
      says: /add\.f32/,
    },
    { fault: 'an approximation', kernel: 'float* x', body: 'x[0] = __expf(x[1]);', says: /ex2\.approx/ },
    {
      fault: 'subnormals that become zero',
      kernel: 'float* x',
      body: 'x[0] = x[1] + x[2];',
      flags: ['-ftz=true'],
      says: /add\.rn\.ftz/,
    },
    {
      fault: 'a maximum that drops a NaN',
      kernel: 'float* x',
      body: 'x[0] = fmaxf(x[0], x[1]);',
      says: /max\.f32/,
    },
    {
      fault: 'an atomic sum',
      kernel: 'float* x',
      body: 'atomicAdd(x, x[threadIdx.x]);',
      says: /(atom|red)\.\S*add\S*\.f32/,
    },
    {
      fault: 'an array in memory',
      kernel: 'float* x, const int* order',
      body: `float v[64];
  for (int i = 0; i < 64; ++i) v[i] = x[i];
  for (int i = 0; i < 64; ++i) x[i] = v[order[i]];`,
      says: /[1-9]\d* bytes of stack/,
    },
  ])('are refused with $fault', async ({ fault, kernel, body, flags = [], says }) => {
    const kernels = join(folder, fault.replaceAll(' ', '-'));
    mkdirSync(kernels);
    const source = join(kernels, 'faulty.cu');
    writeFileSync(source, `__global__ void faulty(${kernel}) {\n  ${body}\n}\n`);
    const compile = [join(native, 'tools/compile_cuda.sh'), join(kernels, 'faulty.o'), source, nvcc ?? ''];
    await run('bash', [...compile, '-O3', '-fmad=false', ...flags, '-gencode=arch=compute_90,code=sm_90']);
    const { code, said } = await check(kernels);
    expect(code).toBe(1);
    expect(said).toMatch(says);
    expect(said).toContain('faulty(');
  });

  test('are refused if there are none', async () => {
    const none = join(folder, 'none');
    mkdirSync(none);
    expect(await check(none)).toEqual({ code: 1, said: expect.stringContaining('no kernels') });
  });
});
