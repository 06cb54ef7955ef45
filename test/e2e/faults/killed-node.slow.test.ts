// Processes are really killed in the middle of episodes' turns. Only the turn in flight of each episode is sampled again.
import { chmodSync, existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { lostWork, readComputed } from '../../support/lost-work.js';
import type { RunSpec } from '../../../src/spec/run-spec.js';
import { readFaults } from '../../../src/store/runs/fault-figures.js';
import { readRun } from '../../../src/store/runs/run-records.js';
import { statusQuery } from '../../../src/workflows/messages.js';
import { Cluster, type RunHandle } from '../../support/cluster/cluster.js';
import { findEngine } from '../../support/find-tools.js';
import { smallRun } from '../../support/small-run.js';
import { undisturbedVerdict } from '../../support/cluster/undisturbed.js';
import { until } from '../../support/until.js';
import { expectEqual, type Verdict } from '../../support/verdict.js';
import type { WorkerProcess } from '../../support/worker-process.js';

const support = (name: string): string =>
  fileURLToPath(new URL(`../../support/preloads/${name}`, import.meta.url));

/** Steps with rollouts: two groups of four episodes, with two or three turns each. */
const [first, second] = [2, 3];
/** Halt after this many turns: all first turns, and half of the second ones. */
const turns = 12;

describe('episodes in flight', () => {
  const folder = mkdtempSync(join(tmpdir(), 'longhaul-killed-'));
  const [asked, halt] = [join(folder, 'asked.jsonl'), join(folder, 'halt.json')];
  let cluster: Cluster;
  let node: WorkerProcess;
  let run: RunHandle;
  let named: (name: string) => RunSpec;
  let undisturbed: Verdict;

  beforeAll(async () => {
    const wrapper = join(folder, 'longhaul-engine');
    const parts = [process.execPath, support('engine-tap.mjs'), asked, process.execPath];
    const halting = [support('engine-halt.mjs'), halt, findEngine()];
    writeFileSync(
      wrapper,
      `#!/bin/sh\nexec ${[...parts, ...halting].map((part) => `'${part}'`).join(' ')} "$@"\n`,
    );
    chmodSync(wrapper, 0o755);
    writeFileSync(asked, '');
    cluster = await Cluster.start({ engine: wrapper });
    [node] = cluster.nodes as [WorkerProcess];
    ({ named } = await smallRun(join(folder, 'data')));
    undisturbed = await undisturbedVerdict(cluster, named);
  });
  afterAll(async () => {
    await cluster?.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  const haltAt = (step: number): void =>
    writeFileSync(halt, JSON.stringify({ domain: 'train', step, turns }));
  const halted = (): Promise<boolean> => until(() => !existsSync(halt), 'all episodes to be in a turn');
  const journals = (): string[] => {
    const below = join(cluster.folder, 'node-1', 'worker', 'journal');
    return existsSync(below) ? readdirSync(below, { recursive: true }).map(String) : [];
  };

  it('lose at most their turn in flight when the node worker or the engine is killed', async () => {
    const deaths: number[] = [];
    writeFileSync(asked, '');
    haltAt(first);
    run = await cluster.run(named('killed'));
    await halted();
    expect(journals().filter((name) => name.endsWith('.journal'))).not.toEqual([]);
    deaths.push(Date.now());
    await node.kill();
    haltAt(second);
    node.start();
    await halted();
    deaths.push(Date.now());
    process.kill(node.enginePid()!, 'SIGKILL');
    expect(await cluster.ended(run)).toMatchObject({ ended: 'completed', step: 4 });
    expect((await run.query(statusQuery)).blocked).toBeNull();

    const lost = lostWork(
      readComputed(asked),
      deaths.map((at) => ({ at })),
    );
    for (const [index, what] of ['the node worker', 'the engine'].entries()) {
      const step = index === 0 ? first : second;
      const { figures } = await readFaults(cluster.store, await readRun(cluster.store, 'killed'), step);
      const tokens = figures['ft/lost_tokens'] ?? 0;
      console.log(`kill of ${what}: ${JSON.stringify({ ...lost[index], tokens })}`);
      // Answered turns are in the journals. Tokens of unanswered turns never reached the node.
      expect(tokens).toBe(0);
    }
    for (const { turns: again, episodes } of lost) {
      expect(again).toBe(1);
      expect(episodes).toBeLessThanOrEqual(8);
    }
    expect(node.log.match(/episodes continued from their journals/g), node.log).toHaveLength(2);
    await expectEqual(cluster.store, 'killed', undisturbed);
    expect(journals()).toEqual([]);
  });
});
