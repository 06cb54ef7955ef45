// `longhaul doctor` starts the engine, and says on which device it computes.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { findGpuReports, type GpuReport, reportedText } from '../../engine/native/gpu-reports.js';
import { createNativeEngine } from '../../engine/native/native-engine.js';
import type { EngineInfo } from '../../engine/policy-engine.js';
import { nameOfNumerics } from '../../spec/records/numerics.js';
import { findEngineBinary } from '../../workers/process/built-tool.js';

/** Starts the engine and greets it. A binary of another version, or built for another machine, does not answer. */
export async function probeEngine(): Promise<string> {
  let warning: string | null = null;
  const engine = createNativeEngine({
    binary: findEngineBinary(),
    log: (line) => (warning = warningIn(line) ?? warning),
  });
  try {
    const info = await engine.info();
    await engine.close(); // so that its whole log is here
    return engineText(info, gpuOfDriver(), findGpuReports(), warning);
  } finally {
    await engine.close();
  }
}

/** The message of a warning among the engine's log lines. */
export function warningIn(line: string): string | null {
  try {
    const { level, message } = JSON.parse(line) as { level?: unknown; message?: unknown };
    return level === 'warn' && typeof message === 'string' ? message : null;
  } catch {
    return null;
  }
}

/**
 * `present`: the machine's GPU, used or not; if null, the text mentions no GPU. `warning`: what the engine logged at its start, such as why it
 * does not use the GPU.
 */
export function engineText(
  { build, numerics, gpu, instructionSet, threads }: EngineInfo,
  present: string | null,
  reports: readonly GpuReport[] | null,
  warning: string | null = null,
): string {
  const on = gpu ? `on ${gpu.name}, ` : '';
  const name = gpu?.name ?? present;
  return [
    build,
    `numerics ${nameOfNumerics(numerics)}, ${on}${instructionSet}, ${threads} threads`,
    ...(warning === null ? [] : [warning]),
    ...(gpu === null && present !== null && warning === null
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
