// A whole run on an S3 service that stores every object at the first put, but answers 500 (R3).
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Cluster } from '../../support/cluster/cluster.js';
import { type FaultProxy, startFaultProxy } from '../../support/servers/fault-proxy.js';
import { startS3Server, type S3Server } from '../../support/servers/s3-server.js';
import { smallRun } from '../../support/small-run.js';
import { undisturbedVerdict } from '../../support/cluster/undisturbed.js';
import { expectEqual } from '../../support/verdict.js';
import type { RunSpec } from '../../../src/spec/run-spec.js';

describe('a run on S3', () => {
  let server: S3Server;
  let proxy: FaultProxy;
  let cluster: Cluster;
  let spec: { named(name: string): RunSpec };

  beforeAll(async () => {
    server = await startS3Server();
    proxy = await startFaultProxy(server.endpoint);
    cluster = await Cluster.start({ store: server.address('faults', proxy.endpoint) });
    spec = await smallRun(join(cluster.folder, 'data'));
  });
  afterAll(async () => {
    await cluster?.stop();
    await proxy?.stop();
    await server?.stop();
  });

  it('ends like an undisturbed run, although every object was answered with 500 after it was stored', async () => {
    const broken = new Set<string>();
    proxy.plan(({ method, url }) => {
      const path = url.split('?')[0] ?? '';
      const puts = method === 'PUT' || (method === 'POST' && url.includes('uploadId='));
      if (!puts || broken.has(path)) return null;
      broken.add(path);
      return { kind: 'answerAfter', status: 500, code: 'InternalError' };
    });
    expect(await cluster.ended(await cluster.run(spec.named('faulty')), 150_000)).toMatchObject({ step: 4 });
    proxy.plan(() => null);
    for (const kind of [
      'plan.json',
      'episodes/',
      'batch.safetensors',
      'update.json',
      'manifest.json',
      'evals/',
    ]) {
      expect([...broken].filter((path) => path.includes(kind)).length, kind).toBeGreaterThan(0);
    }

    await expectEqual(cluster.store, 'faulty', await undisturbedVerdict(cluster, spec.named));
  });
});
