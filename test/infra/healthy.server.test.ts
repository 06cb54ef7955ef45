// The health check of a worker's container: a file that the worker touches while its event loop runs.
import { spawnSync } from 'node:child_process';
import { utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, expect, test } from 'vitest';
import { keepLife } from '../../src/workers/process/life-file.js';
import { repository } from '../support/repository.js';
import { ownFolder } from '../support/scratch-folder.js';

let folder = '';
beforeEach(() => (folder = ownFolder()));

function check(): { code: number | null; says: string } {
  const script = join(repository, 'infra/docker/healthy.mjs');
  const env = { ...process.env, LONGHAUL_FOLDER: folder };
  const { status, stderr } = spawnSync(process.execPath, [script], { env, encoding: 'utf8' });
  return { code: status, says: stderr.trim() };
}

test('a worker is healthy from the moment it serves until it leaves', () => {
  expect(check()).toMatchObject({ code: 1, says: expect.stringContaining('no worker has started') });
  const kept = keepLife(join(folder, 'life.json'), 'node', 'worker_restart');
  expect(check()).toEqual({ code: 1, says: 'not healthy: store or Temporal has not answered yet' });
  kept.serves();
  expect(check()).toEqual({ code: 0, says: '' });
  kept.leave();
  expect(check()).toEqual({ code: 1, says: 'not healthy: leaving' });
});

test('a worker whose event loop has stopped is not healthy', () => {
  const path = join(folder, 'life.json');
  writeFileSync(path, JSON.stringify({ identity: 'somebody', left: false }));
  const then = new Date(Date.now() - 60_000);
  utimesSync(path, then, then);
  expect(check()).toMatchObject({ code: 1, says: expect.stringMatching(/silent for (59|6\d) s/) });
});
