import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { smallRun } from '../support/small-run.js';
import { seededRandom } from './random.js';
import { runTrial } from './trial.js';
import { problemsOf } from './verdict.js';

const folder = mkdtempSync(join(tmpdir(), 'longhaul-chaos-data-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const built = (path: string): string => new URL(`../../dist/${path}`, import.meta.url).pathname;

test(
  'a run with 2 kills ends with the same bits as one that nobody touched',
  // Two lost dispatches cost 10 s each; a time-out of minutes on the way must fail here.
  { timeout: 120_000 },
  async () => {
    const small = (await smallRun(folder)).named('chaos');
    const shared = {
      spec: { ...small, trainer: { ...small.trainer, max_training_steps: 10 } },
      keep: false,
      log: (message: string) => console.log(message),
      scripts: {
        orchestrator: built('workers/orchestrator-main.js'),
        node: built('workers/node-main.js'),
        environments: built('environments/server/main.js'),
      },
    };
    const calm = await runTrial({ ...shared, kills: 0, random: seededRandom(1), longestDelayMs: 0 });
    const killed = await runTrial({ ...shared, kills: 2, random: seededRandom(1), longestDelayMs: 300 });
    expect(problemsOf(calm, killed, 2)).toEqual([]);
    expect(calm.chain.updatesApplied).toBeGreaterThan(5);
  },
);
