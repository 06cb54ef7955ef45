// `longhaul sweeps report NAME`: writes the comparison of a sweep, from any store, as an HTML file for a browser.
import { resolve } from 'node:path';
import type { Command } from 'commander';
import { comparisonPage, sweepsNamed } from '../../store/evaluations/comparisons.js';
import { checkName, checkSweepId } from '../../store/record-keys.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import {
  folderOption,
  openStoreOf,
  type StoreFlags,
  storeOption,
  withOutput,
  writeOutput,
} from '../output.js';

interface ReportFlags extends StoreFlags {
  project: string;
  output?: string;
  json?: boolean;
}

const namesShown = 10;

/** Adds the options and the action of the report to `command`. */
export function addReport(command: Command): void {
  command
    .addOption(storeOption())
    .addOption(folderOption())
    .option('-o, --output <file>', 'where to write it (default: NAME-comparison.html)')
    .option('--json', 'print {sweep, file} as JSON')
    .action(
      withOutput(async (name: string, flags: ReportFlags, own: Command) => {
        const store = await openStoreOf(own, flags);
        const { sweep, key } = await newestComparison(store, checkName(flags.project, 'project'), name);
        const page = await store.get(key);
        if (page === null) throw new Error(`${key} is not in the store any more: give the command again`);
        const file = resolve(flags.output ?? `${sweep.slice(sweep.indexOf('/') + 1)}-comparison.html`);
        await writeOutput(file, page);
        console.log(flags.json ? JSON.stringify({ sweep, file }) : `Comparison of ${sweep}: ${file}`);
      }),
    );
}

/**
 * The comparison of the sweep that was started under this name, or else of the schedule's newest firing. Throws an error that lists the
 * sweeps that exist.
 */
async function newestComparison(
  store: ObjectStore,
  project: string,
  name: string,
): Promise<{ sweep: string; key: string }> {
  // A workflow id has colons in its time; the store's keys have dots there.
  checkSweepId(`${project}/${name.replaceAll(':', '.')}`);
  const { found, known } = await sweepsNamed(store, project, name.replaceAll(':', '.'));
  for (const sweep of found) {
    const key = await comparisonPage(store, sweep);
    if (key !== null) return { sweep, key };
  }
  if (found.length > 0)
    throw new Error(
      `${found[0]} has no comparison yet: if it is not running, finish it with longhaul sweeps run FILE --id NAME, with the same name`,
    );
  const shown = `${known.slice(0, namesShown).join(', ')}${known.length > namesShown ? ', …' : ''}`;
  throw new Error(
    `project ${project} has no sweep "${name}" in ${store.address}: ${known.length === 0 ? 'no sweep was started yet' : `it has ${shown}`}`,
  );
}
