// Two processes that both believe they own the run: two workers of one node, or two executions of the workflow.
import { spawn } from 'node:child_process';
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { ended } from '../../support/servers/temporal-server.js';
import { orchestratorQueue } from '../../../src/workflows/messages.js';
import type { trainingRun } from '../../../src/workflows/run/training-run.js';
import { OpenActivities } from '../../../src/workers/attempt/open-activities.js';
import type { OpenTrial } from '../trial.js';
import { sent, signalled } from '../victims.js';
import { type Fault, lasting, momentary, nothingToUndo } from './fault.js';

/**
 * Fails the node's running attempts on the server. It uses a copy of the list of attempts, because the worker still lives and removes its
 * own entries.
 */
async function failOpenAttempts({ client, folder, node }: OpenTrial): Promise<void> {
  const copy = mkdtempSync(join(folder, 'attempts-'));
  cpSync(join(folder, node, 'open-activities'), copy, { recursive: true });
  // If the server is too busy for this, the attempts end by heartbeat time-out instead.
  await new OpenActivities(copy).failPredecessors(client.activity, () => undefined);
  rmSync(copy, { recursive: true, force: true });
}

/** Starts another worker with the node's own id, but with a new folder. */
function startRival({ stack, folder, scripts, node }: OpenTrial) {
  const { addresses } = stack;
  const script =
    scripts?.node ?? fileURLToPath(new URL('../../../src/workers/node-main.js', import.meta.url));
  return spawn(
    process.execPath,
    [
      ...[
        script,
        '--node',
        node.replace('node', 'local'),
        '--folder',
        mkdtempSync(join(folder, 'rival-')),
        '--engine',
        join(folder, 'engine'),
      ],
      ...['--temporal-address', addresses.temporal, '--namespace', 'default', '--store', addresses.store],
      ...['--environments', addresses.environments!, '--grading-token-file', join(folder, 'grading-token')],
    ],
    { stdio: 'ignore' },
  );
}

export const twoOwnersFaults: readonly Fault[] = [
  {
    name: 'two-workers',
    does: 'the node worker is frozen until its attempts time out, and a second worker of the same node takes them over',
    undone:
      'the first worker wakes during its attempts; both work for two seconds; then SIGTERM ends the second worker',
    ...lasting,
    strike: async ({ trial }) => {
      const pid = await signalled(trial, 'node', 'SIGSTOP');
      if (pid === null) return null;
      const rival = startRival(trial);
      await failOpenAttempts(trial);
      return async () => {
        sent(pid, 'SIGCONT');
        const [begun, before] = [performance.now(), await trial.step()];
        while (!trial.over && performance.now() - begun < 2_000 && (await trial.step()) < before + 2)
          await delay(20);
        // The rival drains for seconds while the run goes on. Only the end of the stack waits for the rival.
        trial.leaving.push(ended(rival));
      };
    },
  },
  {
    name: 'two-executions',
    does: 'a second execution takes the run over while the first is in the middle of a step',
    undone: 'the first ends by itself, with OwnerChanged',
    ...momentary,
    strike: async ({ trial, random }) => {
      const { client, spec } = trial;
      const workflowId = `taken-over-${random.below(1e9)}/${spec.name}`;
      // Set before the new execution exists, because the first execution may end as soon as the new one exists.
      trial.workflowId = workflowId;
      await client.withDeadline(Date.now() + 30_000, () =>
        client.workflow.start<typeof trainingRun>('trainingRun', {
          taskQueue: orchestratorQueue,
          workflowId,
          args: [spec, { takeOver: true }],
          workflowTaskTimeout: '5 seconds',
        }),
      );
      return trial.over ? null : nothingToUndo;
    },
  },
];
