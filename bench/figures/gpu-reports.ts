// Prints what people measured on their GPUs, and sent in.
import { textTable } from '../../src/cli/output.js';
import { type GpuReport, howToReport } from '../../src/engine/native/gpu-reports.js';

export const noGpuReport = `No GPU was reported yet. On a machine with one, ${howToReport}.`;

export function gpuReportText({ gpu, driver, memory_mib, date, commit, rows }: GpuReport): string {
  const verdict = (holds: boolean | null): string =>
    holds === null ? '' : holds ? 'holds' : 'DOES NOT HOLD';
  const head = `${gpu}, driver ${driver}, ${memory_mib} MiB, ${date}, commit ${commit.slice(0, 8)}`;
  const lines = rows.map(({ name, value, unit, bar, holds }) => [
    ...[name, value === '' ? 'not measured' : `${value} ${unit}`.trim(), bar, verdict(holds)],
  ]);
  return `${head}\n${textTable(lines)}`;
}
