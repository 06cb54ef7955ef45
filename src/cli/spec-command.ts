// `longhaul spec SPEC`: the checked spec as JSON, ready for `temporal workflow start --input-file`.
import type { Command } from 'commander';
import { readSpecFile } from '../spec/spec-input.js';
import { withOutput } from './output.js';

export function register(program: Command): void {
  program
    .command('spec')
    .argument('<spec>', 'run spec, YAML or JSON')
    .description('check a run spec and print it as JSON, with all defaults and absolute paths')
    .option('--json', 'print errors as JSON too')
    .addHelpText(
      'after',
      `
The output is the whole input of a run:
  longhaul spec run.yaml > run.json
  temporal workflow start --type trainingRun --task-queue longhaul -w train/NAME --input-file run.json`,
    )
    .action(
      withOutput(async (path: string) => {
        console.log(JSON.stringify(await readSpecFile(path), null, 2));
      }),
    );
}
