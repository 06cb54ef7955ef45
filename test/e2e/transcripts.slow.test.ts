// Runs the console transcripts of docs/operations.md in their order on a live server. They must show what an operator really sees.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, symlinkSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { historyToJSON } from '@temporalio/common/lib/proto-utils.js';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Cluster, RunHandle } from '../support/cluster/cluster.js';
import { findTemporal } from '../support/find-tools.js';
import { repository } from '../support/repository.js';
import { borrowCluster, returnCluster } from '../support/cluster/shared-cluster.js';
import { smallRun } from '../support/small-run.js';
import { until } from '../support/until.js';
import { controlFolder } from '../../src/store/record-keys.js';

interface Shown {
  command: string;
  /** `…` stands for text that differs each time. */
  output: string;
}

/** Commands of the blocks that are fenced as `console`: a line after `$ ` is a command, and the lines below it are its output. */
function transcriptsOf(markdown: string): Shown[] {
  const blocks = [...markdown.matchAll(/^```console\n([^]*?)^```$/gm)].map(([, block]) => block ?? '');
  return blocks.flatMap((block) =>
    block
      .split(/^\$ /m)
      .slice(1)
      .map((piece) => {
        const [command = '', ...output] = piece.replaceAll('\\\n', '').trimEnd().split('\n');
        return { command, output: output.join('\n') };
      }),
  );
}

function patternOf(shown: string): RegExp {
  const parts = shown.split('…').map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'));
  return new RegExp(`^${parts.join('[^]*')}$`);
}

/**
 * Types of the run's events without those of workflow tasks. If a worker is slow, the server also records a workflow task that only refused
 * an Update.
 */
async function eventsOf(run: RunHandle): Promise<string[]> {
  const { events } = JSON.parse(historyToJSON(await run.fetchHistory())) as {
    events: { eventType: string }[];
  };
  return events
    .map(({ eventType }) => eventType)
    .filter((type) => !type.startsWith('EVENT_TYPE_WORKFLOW_TASK_'));
}

/** The run of the transcripts, and the point at which it is held while the commands are typed. */
const [name, point] = ['demo', 'episode-written.step-000002.collect'];

describe('the transcripts of docs/operations.md', () => {
  const shown = transcriptsOf(readFileSync(join(repository, 'docs/operations.md'), 'utf8'));
  let cluster: Cluster;
  let run: RunHandle;
  beforeAll(async () => {
    cluster = await borrowCluster();
    const spec = await smallRun(join(cluster.folder, 'data'));
    const [node] = cluster.nodes;
    node?.hold(point);
    run = await cluster.run(spec.named(name));
    await until(() => node?.hasReached(point), 'the run to be in the middle of a step');
    mkdirSync(join(cluster.folder, 'bin'));
    symlinkSync(join(repository, 'bin/longhaul'), join(cluster.folder, 'bin/longhaul'));
    symlinkSync(findTemporal(), join(cluster.folder, 'bin/temporal'));
  });
  afterAll(() => returnCluster(cluster));

  /** Standard output and standard error together, as a terminal shows them. */
  async function typed(command: string): Promise<string> {
    const child = spawn('bash', ['-c', `${command} 2>&1`], {
      cwd: cluster.folder,
      env: {
        ...process.env,
        PATH: `${join(cluster.folder, 'bin')}${delimiter}${process.env['PATH']}`,
        TEMPORAL_ADDRESS: cluster.temporal.address,
        LONGHAUL_STORE: cluster.storeAddress,
      },
    });
    let output = '';
    child.stdout.on('data', (piece: Buffer) => (output += piece.toString()));
    await once(child, 'close');
    return output.trimEnd();
  }

  it('show every control command in both forms, and refusals', () => {
    const commands = shown.map(({ command }) => command).join('\n');
    for (const verb of ['pause demo', 'pause demo --now', 'resume', 'set', 'checkpoint', 'stop', 'status'])
      expect(commands).toContain(`longhaul ${verb}`);
    for (const update of ['pause', 'pauseNow', 'resume', 'setHyperparameters', 'checkpointNow', 'stopAfter'])
      expect(commands).toMatch(
        new RegExp(`temporal workflow update execute -w train/demo --name ${update}\\b`),
      );
    for (const verb of ['pause', 'unpause', 'reset', 'update-options'])
      expect(commands).toContain(`temporal activity ${verb}`);
  });

  it('leave no trace of refused commands: no control record, and no event', async () => {
    const refused = shown.filter(({ output }) => /^error/im.test(output));
    expect(refused.length).toBeGreaterThan(3);
    const before = await eventsOf(run);
    for (const { command } of refused) await typed(command);
    expect(await eventsOf(run)).toEqual(before);
    expect(await cluster.store.listFolder(controlFolder(name))).toEqual([]);
  });

  it('match what the commands print', async () => {
    for (const { command, output } of shown) {
      const printed = await typed(command);
      expect(printed, `what this prints: ${command}`).toMatch(patternOf(output));
    }
  });
});
