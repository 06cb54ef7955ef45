// What people measured with native/tools/gpu_check.sh on their GPUs, and sent in: docs/gpu/*.json. Nothing is measured here.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';

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

export const howToReport = 'run native/tools/gpu_check.sh and send in the file that it writes';

/** The same path from the sources and from `dist/`. */
const docsFolder = fileURLToPath(new URL('../../../docs', import.meta.url));

/** The reports of this installation. Null if it does not know them: an image of a container has no docs/. */
export function findGpuReports(docs = docsFolder): GpuReport[] | null {
  return existsSync(docs) ? readGpuReports(join(docs, 'gpu')) : null;
}

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

/** In one clause: what is known of this GPU from the reports, or how to report it. `gpu`: its name as the driver says it. */
export function reportedText(gpu: string, reports: readonly GpuReport[] | null): string {
  if (reports === null) return 'docs/gpu of a checkout has what was reported of GPUs';
  if (reports.length === 0) return `nothing has run on a GPU yet that anybody reported: ${howToReport}`;
  const own = reports.filter((report) => report.gpu === gpu).sort((a, b) => (a.date < b.date ? 1 : -1));
  const [newest] = own;
  if (newest === undefined) {
    const others = [...new Set(reports.map((report) => report.gpu))].join(', ');
    return `this GPU was never reported, only ${others}: ${howToReport}`;
  }
  const commit = newest.commit === '' ? 'an unknown commit' : `commit ${newest.commit.slice(0, 8)}`;
  return `this GPU was reported on ${newest.date} at ${commit}: ${barsText(newest)}`;
}

function barsText({ rows }: GpuReport): string {
  const namesOf = (verdict: boolean | null): string =>
    rows
      .filter(({ bar, holds }) => bar !== '' && holds === verdict)
      .map(({ name }) => name)
      .join(', ');
  const [missed, unmeasured] = [namesOf(false), namesOf(null)];
  return [
    missed === '' ? (unmeasured === '' ? 'all its bars held' : 'all measured bars held') : `not held: ${missed}`,
    ...(unmeasured === '' ? [] : [`not measured: ${unmeasured}`]),
  ].join('; ');
}
