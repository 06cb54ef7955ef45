// `longhaul train SPEC`: start or resume a run, and follow it.
import type { Command } from 'commander';
import { WorkflowFailedError } from '@temporalio/client';
import { followRun } from './live-view.js';
import { percent } from '../report/format.js';
import { withOutput } from './output.js';
import { readSpecFile } from '../spec/schema.js';
import { startTraining, whyItEnded } from './start-training.js';
import { type TemporalFlags, temporalConfig, withClient, withTemporalFlags } from './temporal-access.js';

interface TrainFlags extends TemporalFlags {
  json?: boolean;
  detach?: boolean;
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
        await withClient(flags, async (client) => {
          const { handle, started } = await startTraining(
            client,
            spec,
            flags.takeOver ? { takeOver: true } : {},
          );
          say(started ? `${spec.name} is started` : `${spec.name} is running already; following it`);
          const { stack } = temporalConfig(flags);
          if (stack)
            say(
              `Temporal UI: ${stack.ui}/namespaces/default/workflows/${encodeURIComponent(handle.workflowId)}`,
            );
          if (flags.detach) {
            if (flags.json)
              console.log(JSON.stringify({ run: spec.name, workflowId: handle.workflowId, started }));
            return;
          }
          try {
            const result = await followRun(client, handle, { output: process.stderr });
            const last = result.evaluations.at(-1);
            console.log(
              flags.json
                ? JSON.stringify(result)
                : `${result.run} ${result.ended} at step ${result.step}` +
                    (last ? `, held-out pass@1 ${percent(last.pass_at_1)}` : '') +
                    (result.report ? `; for its report: longhaul report ${result.run}` : ''),
            );
          } catch (error) {
            if (error instanceof WorkflowFailedError) throw new Error(whyItEnded(error), { cause: error });
            throw error;
          }
        });
      }),
    );
}

function say(message: string): void {
  process.stderr.write(`${message}\n`);
}
