// `longhaul doctor` starts the engine, and says on what it computes.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { findGpuReports, type GpuReport, reportedText } from '../../engine/native/gpu-reports.js';
import { createNativeEngine } from '../../engine/native/native-engine.js';
import type { EngineInfo } from '../../engine/policy-engine.js';
import { nameOfNumerics } from '../../spec/records/numerics.js';
import { findEngineBinary } from '../../workers/process/engine-binary.js';

/** Starts the engine and greets it. A binary of another version, or built for another machine, does not answer. */
export async function probeEngine(): Promise<string> {
  const engine = createNativeEngine({ binary: findEngineBinary() });
  try {
    return engineText(await engine.info(), gpuOfDriver(), findGpuReports());
  } finally {
    await engine.close();
  }
}

/** `present`: the machine's GPU, used or not. Where there is none, nobody needs to read about GPUs. */
export function engineText(
  { build, numerics, gpu, instructionSet, threads }: EngineInfo,
  present: string | null,
  reports: readonly GpuReport[] | null,
): string {
  const on = gpu ? `on ${gpu.name}, ` : '';
  const name = gpu?.name ?? present;
  return [
    build,
    `numerics ${nameOfNumerics(numerics)}, ${on}${instructionSet}, ${threads} threads`,
    ...(gpu === null && present !== null
      ? [
          `it does not use this machine’s ${present} (LONGHAUL_DEVICE is cpu, or the engine is built for CPUs only: npm run setup)`,
        ]
      : []),
    ...(name === null ? [] : [reportedText(name, reports)]),
  ].join('; ');
}

/** Name of the first GPU that NVIDIA's driver lists. Null without a GPU or a driver, and where the system hides the list. */
export function gpuOfDriver(folder = '/proc/driver/nvidia/gpus'): string | null {
  try {
    const [first] = readdirSync(folder).sort();
    if (first === undefined) return null;
    const information = readFileSync(join(folder, first, 'information'), 'utf8');
    return /^Model:\s*(.+?)\s*$/m.exec(information)?.[1] ?? null;
  } catch {
    return null;
  }
}
