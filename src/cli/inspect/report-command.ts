// `longhaul report RUN`: the run's report as of now, as one HTML file with a folder of transcripts beside it.
import { readdir, rm } from 'node:fs/promises';
import { basename, dirname, extname, join, resolve } from 'node:path';
import type { Command } from 'commander';
import { DatasetCache } from '../../data/dataset-cache.js';
import { renderRunReport } from '../../activities/reports/publish-report.js';
import { RunDataCache } from '../../data/run-data.js';
import { openRunView } from '../../store/runs/quarantine.js';
import { noteNewerTimeline } from '../run-at-step.js';
import {
  folderOption,
  inFolder,
  openStoreOf,
  requireRun,
  type StoreFlags,
  storeOption,
  withOutput,
  writeOutput,
} from '../output.js';

interface ReportOptions extends StoreFlags {
  output?: string;
  json?: boolean;
}

export function register(program: Command): void {
  program
    .command('report')
    .argument('<run>', 'run id, e.g. quickstart')
    .description(
      "write the run's report: an HTML file, with a folder of transcripts beside it if there are many",
    )
    .addOption(storeOption())
    .addOption(folderOption())
    .option('-o, --output <file>', 'where to write it (default: RUN-report.html)')
    .option('--json', 'print {run, step, file, transcripts} as JSON; transcripts: the folder, or null')
    .action(
      withOutput(async (run: string, options: ReportOptions, command: Command) => {
        const stored = await openStoreOf(command, options);
        await requireRun(stored, run);
        const store = await openRunView(stored, run);
        const file = resolve(options.output ?? `${run}-report.html`);
        const folder = transcriptsFolder(file);
        const kept = new Set<string>();
        const { html, step } = await renderRunReport(
          { store, runs: new RunDataCache(store, new DatasetCache(store)) },
          run,
          {
            folder: basename(folder),
            keep: async (name, text) => {
              kept.add(`${name}.js`);
              await writeOutput(join(folder, `${name}.js`), text);
            },
          },
        );
        await writeOutput(file, html);
        await removeOthers(folder, kept);
        const transcripts = kept.size > 0 ? folder : null;
        console.log(
          options.json
            ? JSON.stringify({ run, step, file, transcripts })
            : `Report of ${run} at step ${step}: ${file}` +
                (transcripts === null ? '' : `\nIts transcripts are in ${transcripts}: keep both together`),
        );
        await noteNewerTimeline(store, run, `longhaul report TIMELINE${inFolder(options)}`);
      }),
    );
}

/** `report.html` → `report.transcripts`, beside it. */
function transcriptsFolder(file: string): string {
  return join(dirname(file), `${basename(file, extname(file))}.transcripts`);
}

/** Removes files that an earlier report left there and this one does not use. */
async function removeOthers(folder: string, kept: ReadonlySet<string>): Promise<void> {
  const names = await readdir(folder).catch(() => []);
  const others = names.filter((name) => /^[0-9a-f]{16}\.js$/.test(name) && !kept.has(name));
  await Promise.all(others.map((name) => rm(join(folder, name), { force: true })));
}
