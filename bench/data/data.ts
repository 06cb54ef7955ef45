// A task file of SkyRL Fleet Training's size, prepared from a bucket.
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { openStore } from '../../src/store/open-store.js';
import { startS3Server } from '../../test/support/servers/s3-server.js';
import { repository } from '../repository.js';

export interface DataFigures {
  prepare_tasks: number;
  prepare_seconds: number;
  prepare_mib: number;
  prepare_loop_ms: number;
}

const tasks = 20_000;
/** Each task has its own verifier. */
const verifierBytes = 10_000;
const environments = 14;

/** The file lies in a bucket, the store in a directory. */
export async function measureData(): Promise<DataFigures> {
  const folder = await mkdtemp(join(tmpdir(), 'longhaul-bench-data-'));
  const s3 = await startS3Server();
  try {
    const file = join(folder, 'all_tool_use.json');
    await writeFile(file, rows());
    await (await openStore(s3.address('v3/openenv'))).createFromFile('all_tool_use.json', file);
    const spec = {
      ...{ name: 'fleet', version: 'v3', split: {} },
      tasks: s3.address('v3/openenv').replace('v3/openenv', 'v3/openenv/all_tool_use.json'),
    };
    const script = join(repository, 'dist/dev/bench/data/preparation-process.js');
    const { stdout } = await promisify(execFile)(process.execPath, [
      ...[script, `dir:${join(folder, 'store')}`, JSON.stringify(spec)],
    ]);
    return JSON.parse(stdout) as DataFigures;
  } finally {
    await s3.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

function* rows(): Generator<string> {
  yield '{"tasks": [';
  for (let number = 0; number < tasks; number++) {
    const line = `    assert current.table("orders").eq("id", ${number}).first() is not None\n`;
    const row = {
      ...{ key: `env${number % environments}_task_${number}`, env_id: `env${number % environments}` },
      ...{ prompt: `Book order ${number} for the customer.`, version: 'v0.3', task_modality: 'tool_use' },
      verifier_func: `def verify(env, final_answer=None):\n${line.repeat(Math.ceil(verifierBytes / line.length))}`,
    };
    yield `${number === 0 ? '' : ','}${JSON.stringify(row)}`;
  }
  yield ']}\n';
}
