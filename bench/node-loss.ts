// A run that loses a whole node, its disk included, while there is a second one: when the pool knows of it, and what is computed
// again there.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { defaultPoolId, nodeReportIntervalMs, poolQuery } from '../src/workflows/messages.js';
import type { RunSpec } from '../src/spec/run-spec.js';
import type { StackScripts } from '../src/stack/stack.js';
import { faultySurroundings } from '../test/chaos/surroundings.js';
import { type OpenTrial, runTrial } from '../test/chaos/trial.js';
import { signalled } from '../test/chaos/victims.js';
import { metEpisodes, readComputed, recordedAt } from './lost-work.js';
import { repository } from './repository.js';

export interface NodeLossFigures {
  /** From the node's death until the pool calls it lost, over the time between two of its reports. */
  detection_intervals: number;
  /** From the node's death to the next commit. */
  resumed_seconds: number;
  /** Episodes without a record when the node died. */
  in_flight: number;
  /** Episodes that had their record then and were sampled from after it (R9). */
  finished_again: number;
  /** Episodes of committed steps that were sampled again: those steps are replayed from their batches. */
  committed_again: number;
  /** Updates that the second node applied again. */
  replayed_updates: number;
  violations: number;
}

interface Loss {
  at: number;
  committed: number;
  detectedMs: number;
  resumedMs: number;
  /** By key of an episode of the step that the node died in: when the store took its record, ms. */
  recorded: Map<string, number>;
}

const deadlineMs = 120_000;

/** `step`: in which the run's node dies. */
export async function measureNodeLoss(
  spec: RunSpec,
  step: number,
  log: (message: string) => void = () => undefined,
  scripts?: StackScripts,
): Promise<NodeLossFigures> {
  const folder = mkdtempSync(join(tmpdir(), 'longhaul-bench-node-loss-'));
  const asked = join(folder, 'asked.jsonl');
  writeFileSync(asked, '');
  try {
    const { chain, history, disturbances } = await runTrial<Loss>({
      spec,
      keep: false,
      surround: async (inFolder, own) => {
        const around = await faultySurroundings(inFolder, own, {
          ...{ store: 'directory', nodes: 2, scripts },
          noShim: 'nothing is preloaded here',
        });
        const tap = join(repository, 'test/support/preloads/engine-tap.mjs');
        const engine = join(folder, 'engine');
        const command = `'${process.execPath}' '${tap}' '${asked}' '${around.engine}'`;
        writeFileSync(engine, `#!/bin/sh\nexec ${command} "$@"\n`, { mode: 0o755 });
        return { ...around, engine };
      },
      disturb: async (trial) => [await loseNode(trial, step, asked)],
      ...(scripts ? { scripts } : {}),
      log,
    });
    for (const violation of [...chain.violations, ...history.violations]) log(JSON.stringify(violation));
    const [loss] = disturbances;
    if (!loss) throw new Error('the run was over before its node was lost');
    const computed = readComputed(asked);
    const again = computed.filter(({ at }) => at > loss.at);
    const applied = new Set(
      computed.flatMap((one) => (one.verb === 'update' && one.at <= loss.at ? [one.stepId] : [])),
    );
    const resampled = again.flatMap((one) =>
      one.verb === 'generate' && one.domain === 'train' && one.step <= loss.committed
        ? [`${one.step} ${one.slot} ${one.sample}`]
        : [],
    );
    const replayed = again.flatMap((one) =>
      one.verb === 'update' && applied.has(one.stepId) ? [one.stepId] : [],
    );
    const { inFlight, finishedAgain } = metEpisodes(computed, loss.at, spec.name, loss.recorded);
    return {
      detection_intervals: loss.detectedMs / nodeReportIntervalMs,
      resumed_seconds: loss.resumedMs / 1000,
      in_flight: inFlight,
      finished_again: finishedAgain,
      committed_again: new Set(resampled).size,
      replayed_updates: new Set(replayed).size,
      violations: chain.violations.length + history.violations.length,
    };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The node is killed amid a step, its folder is removed, and it does not come back before the run has gone on without it. */
async function loseNode(trial: OpenTrial, step: number, asked: string): Promise<Loss> {
  while (
    !trial.over &&
    !readComputed(asked).some((one) => one.verb === 'generate' && one.domain === 'train' && one.step >= step)
  )
    await delay(20);
  const node = trial.node;
  const folder = join(trial.folder, node);
  writeFileSync(`${folder}.away`, '');
  if ((await signalled(trial, 'node', 'SIGKILL')) === null)
    throw new Error('the run was over before its node was lost');
  const [at, began] = [Date.now(), performance.now()];
  rmSync(folder, { recursive: true, force: true });
  const committed = await trial.step();
  const pool = trial.client.workflow.getHandle(defaultPoolId);
  const until = async (done: () => Promise<boolean>, what: string): Promise<number> => {
    while (!(await done())) {
      if (performance.now() - began > deadlineMs)
        throw new Error(`${what} was not seen within ${deadlineMs / 1000} s`);
      await delay(50);
    }
    return performance.now() - began;
  };
  const id = node.replace('node', 'local');
  const detectedMs = await until(
    async () => (await pool.query(poolQuery)).nodes.some((one) => one.id === id && one.state === 'lost'),
    `the loss of ${id}`,
  );
  const resumedMs = await until(async () => (await trial.step()) > committed, 'a commit after the loss');
  rmSync(`${folder}.away`, { force: true });
  const recorded = await recordedAt(trial.store, trial.spec.name, committed + 1);
  return { at, committed, detectedMs, resumedMs, recorded };
}
