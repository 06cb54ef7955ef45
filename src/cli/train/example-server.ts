// The example's environment server, on which the quickstart and the presets train.
import { fileURLToPath } from 'node:url';
import type { RunSpec } from '../../spec/run-spec.js';

const entry = fileURLToPath(new URL('../../../dist/examples/apps/server/main.js', import.meta.url));

/** For a shell. */
export const exampleServer = `'${process.execPath}' '${entry}'`;

/** The command as a person types it in the checkout, which starts the stack of `folder` with this server. */
export function upWithExample(folder: string): string {
  return `bin/longhaul up --folder ${folder} --environments 'node dist/examples/apps/server/main.js'`;
}

/** The spec of a preset, where the example's server has the address `url`. */
export function servedAt(spec: RunSpec, url: string): RunSpec {
  const { tasks } = spec.data;
  return {
    ...spec,
    data: {
      ...spec.data,
      ...(tasks === undefined
        ? {}
        : { tasks: tasks.replace(/^openenv\+https?:\/\/[^/]+/, `openenv+${url}`) }),
    },
    environments: spec.environments.map((environment) => ({ ...environment, url })),
  };
}
