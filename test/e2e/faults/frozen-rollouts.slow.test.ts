// A node worker is frozen each time it looks for the episodes of a step. Another node plays and commits the step, and a collection folds
// its episodes. Then the first worker wakes: it must not sample any episode again (R9, R23).
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RunSpec } from '../../../src/spec/run-spec.js';
import { collect } from '../../../src/store/collection/collection.js';
import { episodesFolder, foldedEpisodesKey, updateKey } from '../../../src/store/record-keys.js';
import { Cluster } from '../../support/cluster/cluster.js';
import { findEngine } from '../../support/find-tools.js';
import { smallRun } from '../../support/small-run.js';
import { undisturbedVerdict } from '../../support/cluster/undisturbed.js';
import { until } from '../../support/until.js';
import { expectEqual, type Verdict } from '../../support/verdict.js';

const step = 2;

describe('a node that was frozen while its step was committed and folded', () => {
  let cluster: Cluster;
  let spec: { named(name: string): RunSpec };
  let undisturbed: Verdict;
  const folder = mkdtempSync(join(tmpdir(), 'longhaul-frozen-'));
  const asked = join(folder, 'asked.jsonl');

  beforeAll(async () => {
    const wrapper = join(folder, 'longhaul-engine');
    const parts = [
      process.execPath,
      join(import.meta.dirname, '../../support/preloads/engine-tap.mjs'),
      asked,
      findEngine(),
    ];
    writeFileSync(wrapper, `#!/bin/sh\nexec ${parts.map((part) => `'${part}'`).join(' ')} "$@"\n`);
    chmodSync(wrapper, 0o755);
    cluster = await Cluster.start({ nodes: 2, engine: wrapper });
    spec = await smallRun(join(cluster.folder, 'data'));
    undisturbed = await undisturbedVerdict(cluster, spec.named);
  });
  afterAll(async () => {
    await cluster?.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  const fold = async (run: string): Promise<void> => {
    const done = await collect(cluster.store, run, {
      retention: { keep_last: 1e6, keep_every: 0, keep_best: 0 },
      graceMs: 0,
      by: 'test',
      wait: () => Promise.resolve(),
    });
    expect(done.left).toEqual([]);
    expect(await cluster.store.head(foldedEpisodesKey(run, step))).not.toBeNull();
  };

  /** Turns of the step that were requested from the engines of both nodes since then. */
  const turnsSampled = (since: number): unknown[] =>
    readFileSync(asked, 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { at: number; verb: string; domain?: string; step?: number })
      .filter(
        (one) => one.at >= since && one.verb === 'generate' && one.domain === 'train' && one.step === step,
      );

  it.each([
    ['before it looks at the update', 'rollouts-asked-for'],
    ['between its look at the update and its listing of the episodes', 'episodes-looked-for'],
    ['before its wait for the engine', 'episodes-missed'],
    ['between its last look at the store and its first token', 'episode-begun'],
  ])('samples nothing again if it was frozen %s', async (_, name) => {
    const point = `${name}.step-00000${step}.collect`;
    for (const worker of cluster.nodes) worker.hold(point);
    const run = await cluster.run(spec.named(name));
    const { first } = await cluster.firstAt(point, cluster.nodes);
    first.freeze();
    const late = first.openAttempts();
    expect(await first.failOpenAttempts(cluster.temporal.client.activity)).not.toEqual([]);
    await until(
      async () => (await cluster.store.head(updateKey(name, step))) !== null,
      `the second worker to commit step ${step}`,
    );
    expect(await cluster.ended(run)).toMatchObject({ ended: 'completed', step: 4 });
    await fold(name);
    // Longer than a node trusts its last look at the store (R9).
    await delay(2_500);
    expect(turnsSampled(0)).not.toEqual([]);
    const wokenAt = Date.now();
    first.letGo(point);
    first.wake();
    await until(
      () => !first.openAttempts().some((attempt) => late.includes(attempt)),
      `the late attempts of ${first.name} to end`,
    );
    expect(turnsSampled(wokenAt)).toEqual([]);
    expect(await cluster.store.listFolder(episodesFolder(name, step))).toEqual([]);
    await expectEqual(cluster.store, name, undisturbed);
  });
});
