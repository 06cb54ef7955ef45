// W&B with its own client, offline: its log has every point once, whether the follower, the bridge or W&B's process is killed.
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { SinkRefused } from '../../../src/integrations/tracking/metric-point.js';
import { createWandb, type WandbOptions } from '../../../src/integrations/tracking/wandb/wandb-sink.js';
import { followThroughKills } from '../../workers/follower/killed-processes.js';
import { pythonWith } from '../../support/python/python-environments.js';
import { pointsOf } from './points.js';
import { scratchFolder } from '../../support/scratch-folder.js';

const python = await pythonWith('wandb');

const scratch = scratchFolder();
const quiet = new AbortController().signal;
const key = 'a'.repeat(39) + 'z';

interface Row {
  step: number;
  id: string;
  globalStep: number;
  keys: number;
}

/** All history rows in the folder's W&B logs, by the start that wrote them, without omissions. */
function rowsIn(folder: string): Row[] {
  const program = `
import importlib.util, json, sys
from pathlib import Path
from wandb.proto import wandb_internal_pb2
spec = importlib.util.spec_from_file_location("bridge", sys.argv[2])
bridge = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bridge)
for path in sorted(Path(sys.argv[1]).glob("wandb/offline-run-*/run-*.wandb")):
    for data in bridge.records_of(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            print(json.dumps({"step": row.get("_step", record.history.step.num), "id": row["longhaul/point"],
                              "globalStep": row["trainer/global_step"], "keys": len(row)}))
`;
  const bridge = join(import.meta.dirname, '../../../src/integrations/tracking/wandb/wandb_bridge.py');
  const lines = execFileSync(python, ['-c', program, folder, bridge], {
    encoding: 'utf8',
    timeout: 180_000,
  }).trim();
  return lines === '' ? [] : lines.split('\n').map((line) => JSON.parse(line) as Row);
}

/** The folder's processes: the bridge, found by its arguments, and W&B's own, found by their environment. */
function processesOf(folder: string): { pid: number; name: string }[] {
  const mark = `LONGHAUL_WANDB_FOLDER=${folder}`;
  return readdirSync('/proc')
    .filter((entry) => /^[0-9]+$/.test(entry))
    .flatMap((entry) => {
      try {
        const name = readFileSync(`/proc/${entry}/cmdline`, 'utf8').replaceAll('\0', ' ');
        const environment = readFileSync(`/proc/${entry}/environ`, 'utf8').split('\0');
        return environment.includes(mark) && name !== '' ? [{ pid: Number(entry), name }] : [];
      } catch {
        return [];
      }
    });
}

const options = (folder: string, extra: Partial<WandbOptions> = {}): WandbOptions => ({
  run: 'tiny',
  project: 'tests',
  mode: 'offline',
  folder,
  python,
  apiKey: () => key,
  ...extra,
});

describe.skipIf(!python)('wandb 0.30.0, offline', () => {
  it('has one row per point, at consecutive steps, even over restarts, and reports which points it holds', async () => {
    const folder = join(scratch, 'starts');
    const points = pointsOf(20);
    const sink = createWandb(options(folder));
    for (const upTo of [7, 15, points.length]) {
      const delivered = await sink.open(quiet);
      const missing = points.slice(0, upTo).filter(({ id }) => !delivered.has(id));
      await sink.write(missing, quiet);
      await sink.close(quiet);
    }
    const rows = rowsIn(folder);
    expect(rows.map(({ id }) => id)).toEqual(points.map(({ id }) => id));
    expect(rows.map(({ step }) => step)).toEqual(points.map((_, index) => index));
    expect(rows.map(({ globalStep }) => globalStep)).toEqual(points.map(({ step }) => step));
    expect(readFileSync(join(folder, 'sent.jsonl'), 'utf8')).not.toContain(key);
    expect(processesOf(folder)).toEqual([]);
  });

  it('accepts a late evaluation', async () => {
    const folder = join(scratch, 'late');
    const points = pointsOf(12);
    const late = points.findIndex(({ id }) => id.startsWith('eval'));
    const ordered = [...points.slice(0, late), ...points.slice(late + 1), points[late]!];
    const sink = createWandb(options(folder));
    await sink.open(quiet);
    for (const point of ordered) await sink.write([point], quiet);
    await sink.close(quiet);
    expect(rowsIn(folder).map(({ id, step }) => [id, step])).toEqual(
      ordered.map(({ id }, index) => [id, index]),
    );
  });

  it('repeats and loses nothing after kills of the follower, the bridge and W&B’s process', async () => {
    const folder = join(scratch, 'kills');
    const kills = 20;
    const wandbFolder = join(folder, 'wandb');
    const run = { steps: 200, evalInterval: 9 };
    const ends = await followThroughKills({
      folder,
      kills,
      run,
      python,
      livesMs: (kill) => 30 + ((kill * 37) % 300),
      beforeKill: () => {
        // Before the kill, one of three: W&B's process dies, or both it and the bridge die, or it lives on with its buffer.
        const way = Math.floor(Math.random() * 3);
        for (const { pid, name } of processesOf(wandbFolder))
          if (way === 1 || (way === 2 && name.includes('wandb-core'))) process.kill(pid, 'SIGKILL');
      },
    });
    expect(ends).toEqual([{ how: 'delivered', step: run.steps, notice: null }]);
    const rows = rowsIn(wandbFolder);
    const ids = rows.map(({ id }) => id);
    const steps = Array.from({ length: run.steps }, (_, index) => `step.${index + 1}`);
    const doubled = ids.length - new Set(ids).size;
    const missing = steps.filter((id) => !ids.includes(id)).length;
    console.log(`W&B after ${kills} kills: ${ids.length} rows, ${doubled} doubled, ${missing} missing`);
    expect({ doubled, missing }).toEqual({ doubled: 0, missing: 0 });
    expect(ids).toHaveLength(run.steps + 1 + Math.floor((run.steps - 1) / run.evalInterval) + 1);
    // Steps must be consecutive, so that `wandb sync --append` accepts all parts, one after the other.
    expect(rows.map(({ step }) => step)).toEqual(rows.map((_, index) => index));
    expect(processesOf(wandbFolder)).toEqual([]);
  });

  it('kills a bridge that does not answer in time', async () => {
    const folder = join(scratch, 'stopped');
    const sink = createWandb(options(folder));
    await sink.open(quiet);
    const frozen = processesOf(folder).filter(({ name }) => name.includes('wandb_bridge.py'));
    expect(frozen).toHaveLength(1);
    process.kill(frozen[0]!.pid, 'SIGSTOP');
    await expect(sink.write(pointsOf(3), AbortSignal.timeout(500))).rejects.toThrow();
    expect((await sink.open(quiet)).step).toBe(null);
    await sink.write(pointsOf(3), quiet);
    await sink.close(quiet);
    expect(rowsIn(folder)).toHaveLength(3);
  });
});

describe('W&B that cannot be used', () => {
  it('reports a Python that does not exist', async () => {
    const sink = createWandb(options(join(scratch, 'none'), { python: '/nowhere/python' }));
    const refused = await sink.open(quiet).catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(SinkRefused);
    expect(String(refused)).toContain('/nowhere/python was not found');
    await sink.close(quiet);
  });

  it('says how to install the package if it is missing', async () => {
    const sink = createWandb(options(join(scratch, 'missing'), { python: 'python3.11' }));
    const refused = await sink.open(quiet).catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(SinkRefused);
    expect(String(refused)).toMatch(/-m pip install wandb/);
    await sink.close(quiet);
  });

  it.skipIf(!python)('reports a key that is not valid, once and without quoting it', async () => {
    const sink = createWandb(
      options(join(scratch, 'refused'), { mode: 'online', apiKey: () => 'short-and-secret' }),
    );
    const error = await sink.open(quiet).catch((reason: unknown) => reason as Error);
    expect(error).toBeInstanceOf(SinkRefused);
    expect(String(error)).not.toContain('short-and-secret');
    await sink.close(quiet);
  });
});
