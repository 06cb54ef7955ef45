// What people measured with native/tools/gpu_check.sh on their GPUs, and sent in: docs/gpu/*.json. Nothing is measured here.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { z } from 'zod';
import { textTable } from '../../src/cli/table.js';

const schema = z.object({
  gpu: z.string(),
  driver: z.string(),
  memory_mib: z.string(),
  date: z.string(),
  commit: z.string(),
  rows: z.array(
    z.object({
      ...{ name: z.string(), value: z.string(), unit: z.string(), bar: z.string() },
      /** Null: no bar, or not measured. */
      holds: z.boolean().nullable(),
    }),
  ),
});

export type GpuReport = z.infer<typeof schema>;

export const noGpuReport =
  'No GPU was reported yet. On a machine with one, run native/tools/gpu_check.sh and send in the file that it writes.';

/** Throws an error that names a file which gpu_check.sh did not write. */
export function readGpuReports(folder: string): GpuReport[] {
  const files = existsSync(folder) ? readdirSync(folder).filter((file) => file.endsWith('.json')) : [];
  return files.sort().map((file) => {
    try {
      return schema.parse(JSON.parse(readFileSync(join(folder, file), 'utf8')));
    } catch (error) {
      const why = (error as Error).message;
      throw new Error(`${basename(folder)}/${file} is no report of gpu_check.sh: ${why}`, { cause: error });
    }
  });
}

/** Whether a row misses its bar. */
export function misses({ rows }: GpuReport): boolean {
  return rows.some(({ holds }) => holds === false);
}

export function gpuReportText({ gpu, driver, memory_mib, date, commit, rows }: GpuReport): string {
  const verdict = (holds: boolean | null): string =>
    holds === null ? '' : holds ? 'holds' : 'DOES NOT HOLD';
  const head = `${gpu}, driver ${driver}, ${memory_mib} MiB, ${date}, commit ${commit.slice(0, 8)}`;
  const lines = rows.map(({ name, value, unit, bar, holds }) => [
    ...[name, value === '' ? 'not measured' : `${value} ${unit}`.trim(), bar, verdict(holds)],
  ]);
  return `${head}\n${textTable(lines)}`;
}
