// `longhaul train SPEC`: starts or resumes a run, and follows it. `longhaul train --run RUN` resumes a run from its records alone.
import type { Command } from 'commander';
import type { RunSpec } from '../../spec/run-spec.js';
import { readSpecFile } from '../../spec/spec-input.js';
import { type FollowFlags, trainAndFollow } from './follow-training.js';
import { sayingThatItGoesOn } from '../interruption.js';
import { openExistingStore, withOutput } from '../output.js';
import { storeOfCommand, withClient, withTemporalFlags } from '../temporal-access.js';
import { withSettings } from './spec-settings.js';
import { storedSpec, takingSpecOrRun } from './stored-spec.js';

interface TrainFlags extends FollowFlags {
  store: string;
  run?: string;
  takeOver?: boolean;
}

export function register(program: Command): void {
  withTemporalFlags(
    takingSpecOrRun(
      program.command('train').description('start a run, or resume it over its records, and follow it'),
    ),
    'writes',
  )
    .option('--detach', 'start it and return')
    .option('--take-over', 'take the run over from an owner that can no longer be reached')
    .option('--json', 'print the result as JSON')
    .action(
      withOutput(
        async (path: string | undefined, settings: string[], flags: TrainFlags, command: Command) => {
          const { spec, begun } =
            path === undefined ? await fromStore(flags, command) : await fromFile(path, settings);
          const options = flags.takeOver ? { takeOver: true } : {};
          await withClient(flags, (client) =>
            sayingThatItGoesOn(spec.name, flags, () =>
              trainAndFollow(client, spec, flags, {
                ...{ begun, options },
                store: () => storeOfCommand(command, flags),
              }),
            ),
          );
        },
      ),
    );
}

interface Beginning {
  spec: RunSpec;
  begun: string;
}

async function fromFile(path: string, settings: readonly string[]): Promise<Beginning> {
  const spec = await readSpecFile(path, (input) => withSettings(input, settings));
  return { spec, begun: `starting the run ${spec.name}` };
}

async function fromStore(flags: TrainFlags, command: Command): Promise<Beginning> {
  const store = (await storeOfCommand(command, flags)) ?? (await openExistingStore(flags.store));
  const { run, spec } = await storedSpec(store, flags.run ?? '');
  return { spec, begun: `${spec.name} continues from the records of ${run}` };
}
