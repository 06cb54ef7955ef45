// `longhaul report RUN`: the run's report as of now, as one HTML file.
import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import type { Command } from 'commander';
import { DatasetCache } from '../activities/dataset-cache.js';
import { renderRunReport } from '../activities/publish-report.js';
import { RunDataCache } from '../activities/run-data.js';
import { openRunView } from '../store/quarantine.js';
import { noteNewerTimeline } from './newer-timeline.js';
import {
  folderOption,
  inFolder,
  openStoreOf,
  requireRun,
  type StoreFlags,
  storeOption,
  withOutput,
} from './output.js';

interface ReportOptions extends StoreFlags {
  output?: string;
  json?: boolean;
}

export function register(program: Command): void {
  program
    .command('report')
    .argument('<run>', 'run id, e.g. quickstart')
    .description("write the run's report as one self-contained HTML file")
    .addOption(storeOption())
    .addOption(folderOption())
    .option('-o, --output <file>', 'where to write it (default: RUN-report.html)')
    .option('--json', 'print {run, step, file} as JSON')
    .action(
      withOutput(async (run: string, options: ReportOptions, command: Command) => {
        const stored = await openStoreOf(command, options);
        await requireRun(stored, run);
        const store = await openRunView(stored, run);
        const { html, step } = await renderRunReport(
          { store, runs: new RunDataCache(store, new DatasetCache(store)) },
          run,
        );
        const file = resolve(options.output ?? `${run}-report.html`);
        await written(file, html);
        console.log(
          options.json ? JSON.stringify({ run, step, file }) : `Report of ${run} at step ${step}: ${file}`,
        );
        await noteNewerTimeline(store, run, `longhaul report TIMELINE${inFolder(options)}`);
      }),
    );
}

async function written(file: string, html: string): Promise<void> {
  try {
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, html);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? String(error);
    throw new Error(`the report cannot be written to ${file} (${code}): name another file with --output`, {
      cause: error,
    });
  }
}
