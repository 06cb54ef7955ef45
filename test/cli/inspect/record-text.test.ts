import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { showRecord } from '../../../src/cli/inspect/show-command.js';
import { encodeBatchFile } from '../../../src/store/files/batch-file.js';
import { openDirectoryStore } from '../../../src/store/objects/directory-store.js';
import {
  batchKey,
  checkpointManifestKey,
  episodeKey,
  planKey,
  runKey,
} from '../../../src/store/record-keys.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { adoptOrCreate } from '../../../src/store/records/records.js';
import { checkpointHome, writeCheckpoint } from '../../../src/store/runs/checkpoints.js';
import { digestOf, recordsOfAllKinds } from '../../store/fixtures.js';

let scratch: string;
let store: ObjectStore;
beforeAll(async () => {
  scratch = await mkdtemp(join(tmpdir(), 'longhaul-record-text-'));
  store = await openDirectoryStore(join(scratch, 'store'));
});
afterAll(() => rm(scratch, { recursive: true, force: true }));

describe('show', () => {
  it('prints an episode, a batch, a manifest and any other record as text', async () => {
    const { run, episode, batch, plan } = recordsOfAllKinds();
    const record = { ...run, run: 'tiny' };
    await adoptOrCreate(store, runKey('tiny'), 'run', record);
    await adoptOrCreate(store, episodeKey('tiny', 1, 0, 1), 'episode', episode);
    await adoptOrCreate(store, planKey('tiny', 1), 'plan', plan);
    const arrays = {
      nodes: Int32Array.of(-1, 4, 0),
      tokens: Int32Array.of(1, 2, 3, 4),
      target_rows: Int32Array.of(0, 1, 2),
      target_tokens: Int32Array.of(2, 3, 4),
      target_advantages: Float32Array.of(1, 1, 1),
      target_old_logprobs: Float32Array.of(-1, -2, -3),
      target_samples: new Int32Array(3),
    };
    await store.create(batchKey('tiny', 1), encodeBatchFile(arrays, batch));
    const statePath = join(scratch, 'state');
    await writeFile(statePath, 'state');
    const numerics = { backend: 'cpu', version: 1 } as const;
    await writeCheckpoint(store, record, { step: 1, state: digestOf('1'), numerics, statePath });

    expect(await showRecord(store, episodeKey('tiny', 1, 0, 1))).toMatch(/graded 1; ended by done.*search/s);
    expect(await showRecord(store, batchKey('tiny', 1))).toMatch(
      /1 in 1 tree, 4 tokens.*3: 3 by mini-batch/s,
    );
    expect(await showRecord(store, planKey('tiny', 1))).toMatch(
      /longhaul\.plan\/4 {2}digest [0-9a-f]{64}.*"samples_per_slot": 2/s,
    );
    const manifest = await showRecord(store, checkpointManifestKey(checkpointHome(record), 1));
    expect(manifest).toMatch(/"path": "state\.safetensors".*"size": 5/s);
    await expect(showRecord(store, 'runs/tiny/steps/000001/plan')).rejects.toThrow(/has .*plan\.json/);
  });
});
