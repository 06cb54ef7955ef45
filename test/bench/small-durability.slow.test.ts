// Small forms of the benchmarks that disturb a run: they measure what they say, and what they find shows.
import { mkdtempSync, rmSync, writeFileSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { measureDisturbedRun } from '../../bench/disturbed-run.js';
import { measureNodeLoss } from '../../bench/node-loss.js';
import { smallRun } from '../support/small-run.js';

const data = mkdtempSync(join(tmpdir(), 'longhaul-small-durability-'));
afterAll(() => rmSync(data, { recursive: true, force: true }));
const built = (path: string): string => fileURLToPath(new URL(`../../dist/${path}`, import.meta.url));
const scripts = {
  orchestrator: built('workers/orchestrator-main.js'),
  node: built('workers/node-main.js'),
  environments: built('environments/server/main.js'),
  follower: built('workers/follower-main.js'),
};

// One of them waits most of its time.
describe.concurrent('a small form', () => {
  it('of a run of which engine, node and orchestrator are killed', { timeout: 480_000 }, async () => {
    const figures = await measureDisturbedRun(
      {
        // The checkpoint of step 5 is written beside a step that no kill meets: it tells how long it waited. A kill takes several
        // steps until everybody knows: those after the last one are for machines on which it takes more of them.
        ...{ steps: 17, struck: [1, 3, 7], victims: ['engine', 'node', 'orchestrator'], seed: 1 },
        shape: { hidden_size: 64, layers: 2, groups: 2, samples: 16 },
      },
      (message) => console.log(message),
      {
        scripts,
        // What a worker should never do.
        ended: (folder) =>
          writeFileSync(join(folder, 'logs', 'leak'), readFileSync(join(folder, 'grading-token'))),
      },
    );
    console.log(JSON.stringify(figures));
    expect(figures).toMatchObject({ steps: 16, violations: 0, sessions_leaked: 0, secrets_found: 1 });
    expect(figures.disturbed_steps).toBeGreaterThanOrEqual(1);
    expect(figures.kills_amid_episodes).toBeGreaterThanOrEqual(1);
    expect(figures.turns_again_max).toBeLessThanOrEqual(1);
    // Steps of less than ten seconds are not saved each: those since the last save are replayed.
    expect(figures.updates_again_max - figures.updates_replayed_max).toBeLessThanOrEqual(1);
    // The bench holds 1 s and 2 s on an idle machine; tests share theirs.
    expect(figures.engine_detection_seconds).toBeGreaterThan(0);
    expect(figures.engine_detection_seconds).toBeLessThan(10);
    expect(figures.worker_detection_seconds).toBeGreaterThan(0.1);
    expect(figures.worker_detection_seconds).toBeLessThan(60);
    expect(figures.stall_share).toBeLessThan(1);
  });

  it('of a run that loses its node', { timeout: 480_000 }, async () => {
    const small = (await smallRun(data)).named('node-loss');
    const spec = { ...small, trainer: { ...small.trainer, max_training_steps: 5, ckpt_interval: 2 } };
    const figures = await measureNodeLoss(spec, 5, (message) => console.log(message), scripts);
    console.log(JSON.stringify(figures));
    expect(figures).toMatchObject({ finished_again: 0, committed_again: 0, violations: 0 });
    expect(figures.in_flight).toBeGreaterThanOrEqual(1);
    expect(figures.replayed_updates).toBeGreaterThanOrEqual(1);
    expect(figures.detection_intervals).toBeGreaterThan(0);
    expect(figures.detection_intervals).toBeLessThan(10);
  });
});
