// `longhaul show KEY`: prints any object of the store as readable text.
import type { Command } from 'commander';
import { showRecord } from './record-text.js';
import { folderOption, openStoreOf, type StoreFlags, storeOption, withOutput } from '../output.js';
import { printable } from '../printable.js';

export function register(program: Command): void {
  program
    .command('show')
    .argument('<key>', 'key in the store, e.g. runs/quickstart/steps/000001/update.json')
    .description('print a record, batch or checkpoint file of the store in readable form, or list a folder')
    .addOption(storeOption())
    .addOption(folderOption())
    .option('--json', 'print {key, text} as JSON')
    .action(
      withOutput(async (key: string, options: StoreFlags & { json?: boolean }, command: Command) => {
        const text = await showRecord(await openStoreOf(command, options), key);
        console.log(options.json ? JSON.stringify({ key, text }) : printable(text));
      }),
    );
}
