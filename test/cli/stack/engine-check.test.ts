// What `longhaul doctor` says about the engine, and about the GPU on which it computes or could compute.
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { engineText, gpuOfDriver, warningIn } from '../../../src/cli/stack/engine-check.js';
import type { EngineInfo } from '../../../src/engine/policy-engine.js';

const cpu: EngineInfo = {
  incarnation: 'x',
  build: '0.1.0, g++ 13',
  numerics: { backend: 'cpu', version: 2 },
  gpu: null,
  instructionSet: 'avx2',
  threads: 8,
};
const name = 'NVIDIA H100 80GB HBM3';

it('says nothing of GPUs where there is none', () => {
  expect(engineText(cpu, null, [])).toBe('0.1.0, g++ 13; numerics cpu/2, avx2, 8 threads');
});

it('says whether the GPU of the engine was reported', () => {
  const text = engineText({ ...cpu, gpu: { name, memory_bytes: 1 } }, name, []);
  expect(text).toMatch(
    /^0\.1\.0, g\+\+ 13; numerics cpu\/2, on NVIDIA H100 80GB HBM3, avx2, 8 threads; nothing has run on a GPU yet/,
  );
});

it('says that the engine does not use the GPU of this machine', () => {
  expect(engineText(cpu, name, [])).toContain(
    '; it does not use this machine’s NVIDIA H100 80GB HBM3 (LONGHAUL_DEVICE is cpu, or the engine is built for CPUs only: npm run setup); nothing has run on a GPU yet',
  );
});

it('says what the engine says of the GPU that it does not use', () => {
  const line =
    '{"level":"warn","message":"computes on the CPU, though it is built for GPUs: the NVIDIA driver is for CUDA 12.2"}';
  const warning = warningIn(line);
  const text = engineText(cpu, name, [], warning);
  expect(text).toContain(
    '; computes on the CPU, though it is built for GPUs: the NVIDIA driver is for CUDA 12.2; nothing',
  );
  expect(text).not.toContain('npm run setup');
  for (const other of ['{"level":"info","message":"x"}', 'no JSON', 'null', '{"level":"warn"}'])
    expect(warningIn(other)).toBeNull();
});

it('finds the GPU that the driver of NVIDIA lists', () => {
  const folder = mkdtempSync(join(tmpdir(), 'gpus-'));
  expect(gpuOfDriver(join(folder, 'none'))).toBeNull();
  expect(gpuOfDriver(folder)).toBeNull();
  mkdirSync(join(folder, '0000:01:00.0'));
  writeFileSync(join(folder, '0000:01:00.0/information'), `Model: \t\t ${name}\nIRQ:   \t\t 130\n`);
  expect(gpuOfDriver(folder)).toBe(name);
});
