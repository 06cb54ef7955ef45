// `longhaul train SPEC`: start or resume a run, and follow it.
import type { Command } from 'commander';
import { readSpecFile } from '../spec/spec-input.js';
import { type FollowFlags, trainAndFollow } from './follow-training.js';
import { withOutput } from './output.js';
import { withClient, withTemporalFlags } from './temporal-access.js';

interface TrainFlags extends FollowFlags {
  takeOver?: boolean;
}

export function register(program: Command): void {
  withTemporalFlags(
    program
      .command('train')
      .argument('<spec>', 'run spec, YAML or JSON')
      .description('start a run, or resume it over its records, and follow it'),
  )
    .option('--detach', 'start it and return')
    .option('--take-over', 'take the run over from an owner that cannot be asked any more')
    .option('--json', 'print the result as JSON')
    .action(
      withOutput(async (path: string, flags: TrainFlags) => {
        const spec = await readSpecFile(path);
        await withClient(flags, (client) =>
          trainAndFollow(client, spec, flags, {
            begun: `${spec.name} is started`,
            options: flags.takeOver ? { takeOver: true } : {},
          }),
        );
      }),
    );
}
