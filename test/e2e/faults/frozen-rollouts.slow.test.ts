// A node worker is frozen each time it looks for the episodes of a step. Another node plays and commits the step, and a collection folds
// its episodes. Then the first worker wakes: it must not sample any episode again (R9, R23).
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import type { RunSpec } from '../../../src/spec/run-spec.js';
import { collect } from '../../../src/store/collection/collection.js';
import { readStepEpisodes } from '../../../src/store/runs/episodes.js';
import { episodesFolder, foldedEpisodesKey, updateKey } from '../../../src/store/objects/layout.js';
import { lastCommittedStep, readState } from '../../../src/store/runs/run-records.js';
import { Cluster } from '../../support/cluster.js';
import { findEngine } from '../../support/find-tools.js';
import { smallRun } from '../../support/small-run.js';
import { until } from '../../support/until.js';

const step = 2;

describe('a node that was frozen while its step was committed and folded', { timeout: 240_000 }, () => {
  let cluster: Cluster;
  let spec: { named(name: string): RunSpec };
  let undisturbed: { tokens: number[] }[];
  let state: string;
  const folder = mkdtempSync(join(tmpdir(), 'longhaul-frozen-'));
  const asked = join(folder, 'asked.jsonl');
  const engineBefore = process.env['LONGHAUL_ENGINE'];

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
    process.env['LONGHAUL_ENGINE'] = wrapper;
    cluster = await Cluster.start({ nodes: 2 });
    spec = await smallRun(join(cluster.folder, 'data'));
    await cluster.ended(await cluster.run(spec.named('undisturbed')));
    undisturbed = (await readStepEpisodes(cluster.store, 'undisturbed', step)).map(({ tokens }) => ({
      tokens,
    }));
    state = await readState(cluster.store, 'undisturbed', 4);
  }, 240_000);
  afterAll(async () => {
    await cluster?.stop();
    if (engineBefore === undefined) delete process.env['LONGHAUL_ENGINE'];
    else process.env['LONGHAUL_ENGINE'] = engineBefore;
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
    const episodes = await readStepEpisodes(cluster.store, name, step);
    expect(episodes.map(({ tokens }) => ({ tokens }))).toEqual(undisturbed);
    expect(await readState(cluster.store, name, await lastCommittedStep(cluster.store, name))).toBe(state);
    expect((await auditRun(cluster.store, name)).violations).toEqual([]);
  });
});
