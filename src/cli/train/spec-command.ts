// `longhaul spec SPEC`: prints the checked spec as JSON, ready for `temporal workflow start --input-file`. With `--run RUN` it prints the
// spec of a run.
import type { Command } from 'commander';
import { refuseBadFiles } from '../../data/dataset-validation.js';
import type { RunSpec } from '../../spec/run-spec.js';
import { skyrlMeanings } from '../../spec/names/skyrl-meanings.js';
import { readSpecFile } from '../../spec/spec-input.js';
import { folderOption, openStoreOf, type StoreFlags, withOutput } from '../output.js';
import { withSettings } from './spec-settings.js';
import { storedSpec, takingSpecOrRun } from './stored-spec.js';

interface SpecFlags extends StoreFlags {
  run?: string;
}

export function register(program: Command): void {
  takingSpecOrRun(
    program
      .command('spec')
      .description(
        'check a run spec and print it as JSON, with all defaults and absolute paths; or print that of a run',
      ),
  )
    .addOption(folderOption())
    .option('--json', 'print errors as JSON as well')
    .addHelpText(
      'after',
      `
The output is the whole input of a run:
  longhaul spec run.yaml > run.json
  temporal workflow start --type trainingRun --task-queue longhaul -w train/NAME --input-file run.json
Keys that mean something else in SkyRL are named on the error output.
With --run RUN it is the spec from which that run continues, even after a fork or a rewind.`,
    )
    .action(
      withOutput(async (path: string | undefined, settings: string[], flags: SpecFlags, command: Command) => {
        console.log(JSON.stringify(await specOf(path, settings, flags, command), null, 2));
      }),
    );
}

async function specOf(
  path: string | undefined,
  settings: readonly string[],
  flags: SpecFlags,
  command: Command,
): Promise<RunSpec> {
  if (path !== undefined) {
    let notes: string[] = [];
    const spec = await readSpecFile(path, (input) => {
      const changed = withSettings(input, settings);
      notes = skyrlMeanings(changed);
      return changed;
    });
    await refuseBadFiles(spec);
    // Not on the output, which is the input of a run.
    for (const note of notes) process.stderr.write(`note: ${note}\n`);
    return spec;
  }
  return (await storedSpec(await openStoreOf(command, flags), flags.run ?? '')).spec;
}
