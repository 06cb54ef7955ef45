// After Ctrl-C, a command that followed a run says that the run goes on.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { resolve } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { sharedTemporal } from '../support/servers/shared-temporal.js';
import type { ConnectedTemporal } from '../support/servers/temporal-server.js';
import { until } from '../support/until.js';

let temporal: ConnectedTemporal;
beforeAll(async () => {
  temporal = await sharedTemporal();
});
afterAll(() => temporal?.stop());

it('a followed run goes on after Ctrl-C; the command says this, and how to end the run', async () => {
  const args = ['train', resolve('presets/tiny.yaml'), '--temporal-address', temporal.address];
  const child = spawn(resolve('bin/longhaul'), args, { stdio: ['ignore', 'ignore', 'pipe'] });
  let errors = '';
  child.stderr.on('data', (piece: Buffer) => (errors += piece.toString()));
  const closed = once(child, 'close');
  await until(() => errors.includes('starting the run tiny'), 'the run to be followed');
  child.kill('SIGINT');
  expect(await closed).toEqual([130, null]);
  expect(errors).toMatch(
    /\nstopped following; tiny continues\. Watch it with: longhaul status tiny; end it with: longhaul cancel tiny\n$/,
  );
  const run = temporal.client.workflow.getHandle('train/tiny');
  expect((await run.describe()).status.name).toBe('RUNNING');
  await run.terminate();
});
