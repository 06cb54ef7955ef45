// Many runs at once on one orchestrator: the real orchestrator worker, Temporal server and store. The node computes nothing
// (instant-node.ts), so the machine's cores are free for the orchestrator and the server.
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from '@temporalio/client';
import { startTraining } from '../../src/cli/train/start-training.js';
import type { ObjectStore } from '../../src/store/objects/object-store.js';
import { openStore } from '../../src/store/open-store.js';
import { readState, readUpdate } from '../../src/store/runs/run-records.js';
import { findEngineBinary } from '../../src/workers/process/built-tool.js';
import { freePort } from '../../src/stack/free-port.js';
import type { StackScripts } from '../../src/stack/process-plans.js';
import { startStack } from '../../src/stack/stack.js';
import { openConnection } from '../../src/workers/temporal/temporal-connection.js';
import { builtScripts } from '../../test/support/repository.js';
import { steadyRun } from '../durability/steady-run.js';
import { median } from '../figures/figure.js';

export interface ManyRunsPlan {
  runs: number;
  /** Number of steps of each run. */
  steps: number;
  /** Time that the node takes for a step. It does not count as orchestration. */
  workMs: number;
  /** Compiled code of the instant node. By default the other processes use the stack's own code. */
  scripts: Pick<StackScripts, 'node'> & Partial<StackScripts>;
  deadlineMs: number;
}

export interface ManyRunsFigures {
  runs: number;
  finished: number;
  steps: number;
  /** Steps whose update does not follow from the update before. */
  broken_links: number;
  seconds: number;
  orchestration_ms_p50: number;
  orchestration_ms_p95: number;
}

export async function measureManyRuns(plan: ManyRunsPlan): Promise<ManyRunsFigures> {
  const folder = await mkdtemp(join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), 'longhaul-bench-many-'));
  process.env['LONGHAUL_BENCH_WORK_MS'] = String(plan.workMs);
  const stack = await startStack({
    folder,
    engine: findEngineBinary(),
    places: plan.runs,
    log: () => undefined,
    gaveUp: (error) => process.stderr.write(`${error.message}\n`),
    temporalPort: await freePort(),
    uiPort: await freePort(),
    scripts: { environments: builtScripts.environments, ...plan.scripts },
  });
  const connection = openConnection({ address: stack.addresses.temporal });
  try {
    const client = new Client({ connection });
    const names = Array.from({ length: plan.runs }, (_, index) => `many-${index + 1}`);
    const begun = performance.now();
    const ended = await Promise.all(
      names.map(async (name) => {
        // Each run has its own data, as real projects do.
        const spec = await steadyRun(join(folder, name), { name, steps: plan.steps });
        const { handle } = await startTraining(client, spec);
        const late = new Promise<null>((resolve) => setTimeout(resolve, plan.deadlineMs, null).unref());
        return Promise.race([handle.result(), late]);
      }),
    );
    const seconds = (performance.now() - begun) / 1_000;
    const store = await openStore(stack.addresses.store);
    const steps = (await Promise.all(names.map((name) => stepsOf(store, name, plan.steps)))).flat();
    const orchestration = steps.flatMap(({ ms }) => ms ?? []).sort((a, b) => a - b);
    return {
      ...{ runs: plan.runs, seconds, steps: steps.length },
      finished: ended.filter((result) => result?.ended === 'completed' && result.step === plan.steps).length,
      broken_links: steps.filter(({ follows }) => !follows).length,
      orchestration_ms_p50: median(orchestration),
      orchestration_ms_p95: orchestration[Math.ceil(orchestration.length * 0.95) - 1] ?? Number.NaN,
    };
  } finally {
    await connection.close();
    await stack.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

async function stepsOf(
  store: ObjectStore,
  run: string,
  count: number,
): Promise<{ follows: boolean; ms: number | null }[]> {
  const steps = [];
  let state = await readState(store, run, 0);
  for (let step = 1; step <= count; step += 1) {
    const { identity, observed } = await readUpdate(store, run, step);
    const { step: wall, in_flight: work } = observed.timings_ms;
    steps.push({
      follows: identity.previous_state === state && identity.step === step,
      ms: wall === undefined || work === undefined ? null : wall - work,
    });
    state = identity.state;
  }
  return steps;
}
