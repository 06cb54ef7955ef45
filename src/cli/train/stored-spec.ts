// Reads the spec of a run from its records alone: a fork or a rewind has no spec file, and a file may be lost.
import type { Command } from 'commander';
import { timelinesNamed } from '../../activities/run/fork-run.js';
import type { OwnerRecord } from '../../spec/records/run-records.js';
import type { RunSpec } from '../../spec/run-spec.js';
import { parseRunSpec } from '../../spec/spec-input.js';
import { nameOfRun } from '../../store/record-keys.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { atServers, readOwner } from '../../store/runs/owners.js';
import { readRun } from '../../store/runs/run-records.js';
import { requireRun, storeOption } from '../output.js';

interface StoredSpec {
  /** The newest timeline of its name, which a start of this name continues. */
  run: string;
  spec: RunSpec;
}

/** Spec of the name's newest timeline. Settings that may change between starts (servers, budget, channels) come from the last start. */
export async function storedSpec(store: ObjectStore, run: string): Promise<StoredSpec> {
  const name = nameOfRun(run);
  const newest = (await timelinesNamed(store, name)).at(-1) ?? name;
  await requireRun(store, newest);
  const { spec } = await readRun(store, newest);
  const owner = await readOwner(store, newest);
  return { run: newest, spec: parseRunSpec(owner ? asLastStarted(spec, owner) : spec) };
}

function asLastStarted(spec: RunSpec, { observed }: OwnerRecord): RunSpec {
  const { budget: _budget, tracking: _tracking, slack: _slack, ...rest } = spec;
  const { budget, tracking, slack } = observed;
  return {
    ...atServers(rest, observed.environment_urls ?? {}),
    ...(budget ? { budget } : {}),
    ...(tracking ? { tracking } : {}),
    ...(slack ? { slack } : {}),
  };
}

/** For commands that take a spec, either as a file with settings or by `--run RUN`. Giving neither or both is an error. */
export function takingSpecOrRun(command: Command): Command {
  return command
    .argument('[spec]', 'run spec, YAML or JSON')
    .argument('[settings...]', 'KEY=VALUE, in place of what the file says: trainer.lr=1e-6, env_key=github')
    .option('--run <run>', 'use the spec of this run from the store instead of a file')
    .addOption(storeOption())
    .hook('preAction', (taking) => {
      const named = taking.opts<{ run?: string }>().run !== undefined;
      if (taking.args.length === 0 && !named)
        taking.error(
          "error: missing required argument 'spec': name a file, or a run of the store with --run RUN",
        );
      if (taking.args.length > 0 && named)
        taking.error('error: a spec file and --run are two specs: give one of them');
    });
}
