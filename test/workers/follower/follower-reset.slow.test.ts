// The follower as a process, with a real Temporal server: it has followed a run to its end, and then the run is reset.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openDirectoryStore } from '../../../src/store/objects/directory-store.js';
import { ownersFolder, sequenceKey } from '../../../src/store/record-keys.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { encodeRecord } from '../../../src/store/records/record-codec.js';
import { claimName } from '../../../src/store/runs/run-records.js';
import { recordsOf, writeAll } from './written-run.js';
import { recordsOfAllKinds } from '../../store/fixtures.js';
import { until } from '../../support/until.js';
import { resetStandIn, startStandIn, temporal, useStandInRuns } from './stand-in-runs.js';
import type { TrackingSpec } from '../../../src/spec/run-spec.js';

const register = fileURLToPath(new URL('../../support/preloads/typescript-register.mjs', import.meta.url));
const program = fileURLToPath(new URL('../../../src/workers/follower-main.ts', import.meta.url));

describe('a run that was followed to its end and is reset', () => {
  useStandInRuns();
  let root: string;
  let store: ObjectStore;
  let follower: ChildProcess | null = null;
  beforeEach(async () => {
    root = mkdtempSync(join(tmpdir(), 'longhaul-follower-reset-'));
    store = await openDirectoryStore(join(root, 'store'));
  });
  afterEach(async () => {
    await stop();
    rmSync(root, { recursive: true, force: true });
  });

  const folder = (): string => join(root, 'follower');
  function start(): void {
    const flags = [
      ...['--store', `dir:${join(root, 'store')}`, '--folder', folder()],
      ...['--temporal-address', temporal.address, '--no-temporal-profile'],
    ];
    follower = spawn(process.execPath, ['--import', register, program, ...flags], {
      stdio: 'ignore',
      env: { ...process.env, LONGHAUL_WANDB_PYTHON: hangingPython() },
    });
  }
  /** A script instead of Python: it never answers, and ends with the follower. */
  function hangingPython(): string {
    const path = join(root, 'hanging-python');
    writeFileSync(path, '#!/bin/sh\nwhile kill -0 "$PPID"; do sleep 1; done\n', { mode: 0o755 });
    return path;
  }
  const hasOpen = (name: string): boolean =>
    readdirSync(`/proc/${follower?.pid}/fd`).some((fd) => {
      try {
        return readlinkSync(`/proc/${follower?.pid}/fd/${fd}`).endsWith(name);
      } catch {
        return false;
      }
    });
  async function stop(): Promise<void> {
    if (!follower || follower.exitCode !== null || follower.signalCode !== null) return;
    const ended = once(follower, 'exit');
    follower.kill('SIGTERM');
    await ended;
  }

  const points = (run: string): { id: string; step: number }[] => {
    const file = join(folder(), 'tracking', run, 'metrics.jsonl');
    if (!existsSync(file)) return [];
    const lines = readFileSync(file, 'utf8').split('\n').slice(0, -1);
    return lines.map((line) => JSON.parse(line) as { id: string; step: number });
  };
  const has = (run: string, last: number): boolean => points(run).some(({ step }) => step === last);
  const isNotedAsOver = (run: string): boolean => {
    const file = join(folder(), 'runs', `${run}.json`);
    return existsSync(file) && (JSON.parse(readFileSync(file, 'utf8')) as { over: boolean }).over;
  };

  /** Starts a workflow that waits, and writes the records of its first four steps. */
  async function begun(run: string, tracking: Partial<TrackingSpec> = {}) {
    const handle = await startStandIn(run, 'waits');
    const owners = sequenceKey(ownersFolder(run), 1);
    const records = recordsOf({ run, steps: 6 }).filter(({ key }) => key !== owners);
    const { owner } = recordsOfAllKinds();
    const observed = {
      ...owner.observed,
      tracking: { metrics_jsonl: true, tensorboard: false, ...tracking },
    };
    const record = { ...owner, n: 1, firstExecutionRunId: handle.firstExecutionRunId, observed };
    await claimName(store, run);
    await store.create(owners, await encodeRecord('owner', record));
    const isLate = ({ group, step }: { group: string; step: number }): boolean =>
      group === 'steps' && step > 4;
    await writeAll(
      store,
      records.filter((one) => !isLate(one)),
    );
    return { workflowId: handle.workflowId, rest: records.filter(isLate) };
  }

  it.each<[when: string, isAway: boolean]>([
    ['while no follower runs is followed to its new end by the next follower', true],
    ['between two looks of the follower is followed to its new end', false],
  ])('and that ends again %s', async (_, isAway) => {
    const run = isAway ? 'away' : 'between';
    const { workflowId, rest } = await begun(run);
    const end = (): Promise<unknown> => temporal.client.workflow.getHandle(workflowId).terminate('a test');
    const firstTask = async (): Promise<boolean> =>
      (await temporal.client.workflow.getHandle(workflowId).describe()).historyLength >= 4;
    await until(firstTask, 'its first workflow task');
    start();
    await until(() => has(run, 4), 'its first points');
    await end();
    await until(() => isNotedAsOver(run), 'its end');
    if (isAway) await stop();
    await resetStandIn(run);
    await writeAll(store, rest);
    await end();
    if (isAway) start();
    await until(() => has(run, 6), 'its last points');
    await until(() => isNotedAsOver(run), 'its new end');
    const ids = points(run).map(({ id }) => id);
    expect(new Set(ids).size).toBe(ids.length);
  });

  it('is sent again to all other trackers while one tracker still lacks its end', async () => {
    const run = 'lacking';
    const { workflowId, rest } = await begun(run, { wandb: { mode: 'online' } });
    const handle = temporal.client.workflow.getHandle(workflowId);
    await until(async () => (await handle.describe()).historyLength >= 4, 'its first workflow task');
    start();
    await until(() => has(run, 4), 'its first points');
    await handle.terminate('a test');
    await until(() => !hasOpen('metrics.jsonl'), 'the file to have its end');
    await resetStandIn(run);
    await writeAll(store, rest);
    await until(() => has(run, 6), 'the points after the reset');
    await handle.terminate('a test');
    const ids = points(run).map(({ id }) => id);
    expect(new Set(ids).size).toBe(ids.length);
  });
});
