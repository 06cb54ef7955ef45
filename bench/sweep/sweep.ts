// Measures a sweep over a run's checkpoints on the embedded stack: its time and memory, and the time of a second sweep that has nothing new
// to play.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Client } from '@temporalio/client';
import { servedAt } from '../../src/cli/train/example-server.js';
import { startTraining } from '../../src/cli/train/start-training.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import { readSpecFile } from '../../src/spec/spec-input.js';
import { freePort } from '../../src/stack/free-port.js';
import { startStack } from '../../src/stack/stack.js';
import { findEngineBinary } from '../../src/workers/process/built-tool.js';
import { openConnection } from '../../src/workers/temporal/temporal-connection.js';
import { orchestratorQueue } from '../../src/workflows/messages.js';
import type { evalSweep } from '../../src/workflows/sweep/eval-sweep.js';
import type { SweepResult } from '../../src/workflows/sweep/sweep-messages.js';
import { builtScripts } from '../../test/support/repository.js';
import { repository } from '../repository.js';
import { MemorySamples, pidsOf } from '../scale/process-memory.js';

export interface SweepFigures {
  episodes: number;
  seconds: number;
  /** Median resident memory in the last quarter of the sweep's time divided by that in the second quarter, minus 1. */
  orchestrator_growth: number;
  node_growth: number;
  engine_growth: number;
  /** Time of the same sweep under another name, in s. */
  again_seconds: number;
}

/** How many of the run's newest checkpoints are evaluated, and the suite that each of them plays. */
interface SweepPlan {
  spec: RunSpec;
  checkpoints: number;
  tasks: number;
  samples: number;
}

const sampleEveryMs = 500;

/** Trains the quickstart for fewer steps, with a checkpoint after every second one, and sweeps over the checkpoints. */
export async function measureSweepOfQuickstart(): Promise<SweepFigures> {
  const quickstart = await readSpecFile(join(repository, 'presets/quickstart.yaml'));
  const spec = {
    ...quickstart,
    name: 'swept',
    trainer: {
      ...quickstart.trainer,
      ...{ max_training_steps: 40, ckpt_interval: 2, eval_interval: 1_000, target_pass_at_1: 0 },
    },
  };
  const figures = await measureSweep({ spec, checkpoints: 20, tasks: 100, samples: 4 });
  if (figures.episodes !== 8_000) throw new Error(`the sweep played ${figures.episodes} of 8,000 episodes`);
  return figures;
}

/** Throws if the run or a sweep does not complete, or if the second sweep plays an episode. */
async function measureSweep(plan: SweepPlan): Promise<SweepFigures> {
  const folder = await mkdtemp(join(tmpdir(), 'longhaul-bench-sweep-'));
  const stack = await startStack({
    folder,
    engine: findEngineBinary(),
    log: () => undefined,
    gaveUp: (error) => process.stderr.write(`${error.message}\n`),
    temporalPort: await freePort(),
    uiPort: await freePort(),
    scripts: { environments: builtScripts.environments },
  });
  const connection = openConnection({ address: stack.addresses.temporal });
  try {
    const client = new Client({ connection });
    const { handle } = await startTraining(client, servedAt(plan.spec, stack.addresses.environments!));
    const { ended, step } = await handle.result();
    if (ended !== 'completed') throw new Error(`the run ${ended} after step ${step}`);
    const memory = new MemorySamples();
    const first = await sweep(client, plan, 'measured', (sample) => memory.take(sample, pidsOf(stack)));
    const again = await sweep(client, plan, 'again');
    if (again.episodes > 0) throw new Error(`the same sweep played ${again.episodes} episodes again`);
    const quarter = (name: string, n: number): number =>
      memory.medianBytes(
        name,
        Math.floor((n * first.samples) / 4),
        Math.floor(((n + 1) * first.samples) / 4),
      );
    const growth = (name: string): number => quarter(name, 3) / quarter(name, 1) - 1;
    return {
      ...{ episodes: first.episodes, seconds: first.seconds, again_seconds: again.seconds },
      ...{ orchestrator_growth: growth('orchestrator'), node_growth: growth('node') },
      engine_growth: growth('engine'),
    };
  } finally {
    await connection.close();
    await stack.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

/** Calls `take` with the number of the sample, from 0, until the sweep is over. */
async function sweep(
  client: Client,
  { spec, checkpoints, tasks, samples }: SweepPlan,
  name: string,
  take: (sample: number) => void = () => undefined,
): Promise<{ episodes: number; seconds: number; samples: number }> {
  const input = {
    ...{ name, project: spec.project, checkpoints: [{ run: spec.name, latest: checkpoints }] },
    suites: [{ name: 'held-out', max_tasks: tasks, samples }],
  };
  const begun = performance.now();
  const handle = await client.workflow.start<typeof evalSweep>('evalSweep', {
    ...{ taskQueue: orchestratorQueue, workflowId: `eval/${spec.project}/${name}`, args: [input] },
    workflowTaskTimeout: '5 seconds',
  });
  let isOver = false;
  const ended: Promise<SweepResult> = handle.result().finally(() => (isOver = true));
  let sample = 0;
  while (!isOver) {
    take(sample++);
    await Promise.race([delay(sampleEveryMs), ended]);
  }
  const result = await ended;
  if (result.ended !== 'completed' || result.pairs !== checkpoints)
    throw new Error(`the sweep ${name} is incomplete: ${JSON.stringify(result).slice(0, 400)}`);
  return { episodes: result.episodes, seconds: (performance.now() - begun) / 1_000, samples: sample };
}
