// No secret leaks. The test plants secrets wherever a person may give one, and makes every server that knows a secret fail and repeat it.
// Then it searches everything that is left behind: history, heartbeats, status, logs, store, report, folders, command lines.
import { execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative, resolve } from 'node:path';
import { promisify } from 'node:util';
import { gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { writings } from '../../src/base/secrets.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import { resumeUpdate, statusQuery } from '../../src/workflows/messages.js';
import { hasOpenssl, makeAuthority } from '../support/servers/certificates.js';
import { Cluster, type RunHandle } from '../support/cluster/cluster.js';
import {
  type EnvironmentProcess,
  startEnvironmentProcess,
  testToken,
} from '../support/servers/environment-process.js';
import {
  inEveryWay,
  type Parrot,
  type S3Parrot,
  startParrotEnvironment,
  startS3Parrot,
} from '../support/parrots.js';
import { startS3Server, type S3Server } from '../support/servers/s3-server.js';
import { smallRun } from '../support/small-run.js';
import { startTemporalGateway, type TemporalGateway } from '../support/servers/temporal-gateway.js';
import { until } from '../support/until.js';

const secrets = {
  'the grading token in a file': testToken,
  'the grading token in a variable': 'tracker+token/of=4e61',
  'the grading token that is refused': 'booking+token/of=88c0',
  'the Temporal API key': 'temporal+api/key=d51b',
  'a header of Temporal': 'temporal+header/of=7a02',
  'the S3 key': '',
  'a password in another variable': 'database+password/of=20fe',
};

if (!hasOpenssl()) console.warn('skipped: secrets behind certificates: openssl is not installed');
describe.skipIf(!hasOpenssl())('a secret (certificates by openssl)', () => {
  const certificates = mkdtempSync(join(tmpdir(), 'longhaul-certificates-'));
  let s3: S3Server;
  let bucket: S3Parrot;
  let tracker: EnvironmentProcess;
  let booking: Parrot;
  let gateway: TemporalGateway;
  let cluster: Cluster;
  let run: RunHandle;
  /** Texts that were seen while the run was open: pending activities with heartbeats and failures, and statuses. */
  const seen: string[] = [];

  beforeAll(async () => {
    s3 = await startS3Server();
    secrets['the S3 key'] = process.env['AWS_SECRET_ACCESS_KEY']!;
    [bucket, tracker, booking] = await Promise.all([
      startS3Parrot(s3.endpoint, [secrets['the S3 key'], secrets['a password in another variable']]),
      startEnvironmentProcess([], secrets['the grading token in a variable']),
      startParrotEnvironment(),
    ]);
    vi.stubEnv('TRACKER_TOKEN', secrets['the grading token in a variable']);
    vi.stubEnv('BOOKING_TOKEN', secrets['the grading token that is refused']);
    vi.stubEnv('TEMPORAL_API_KEY', secrets['the Temporal API key']);
    vi.stubEnv('TEMPORAL_GRPC_META_X_TEAM', secrets['a header of Temporal']);
    vi.stubEnv('DATABASE_PASSWORD', secrets['a password in another variable']);
    vi.stubEnv('DATABASE_URL', `postgres://user:${secrets['a password in another variable']}@127.0.0.1/x`);
    cluster = await Cluster.start({
      store: s3.address('secrets', bucket.url),
      gateway: async (target) => {
        const authority = makeAuthority(certificates, 'authority');
        vi.stubEnv('TEMPORAL_TLS_SERVER_CA_CERT_PATH', authority.cert);
        gateway = await startTemporalGateway({
          target,
          certificate: authority.sign('server'),
          apiKey: secrets['the Temporal API key'],
          refusal: (authorization) =>
            `no such key ${inEveryWay(authorization.replace('Bearer ', ''))} ${secrets['a header of Temporal']}`,
        });
        return gateway.address;
      },
    });
    const spec: RunSpec = (await smallRun(join(cluster.folder, 'data'))).named('secretive');
    const environments = [
      { env_key: 'tracker', url: tracker.url, grading_token_env: 'TRACKER_TOKEN' },
      { env_key: 'booking', url: booking.url, grading_token_env: 'BOOKING_TOKEN' },
    ];
    const node = cluster.nodes[0]!;
    const planned = 'plan-written.step-000002.plan';
    cluster.orchestrators[0]!.hold(planned);
    bucket.refuseNext(/steps\/000001\/plan\.json/);
    run = await cluster.run({ ...spec, environments });

    // The store refuses a signature, so the run is blocked, and a person resumes it.
    const { blocked } = await until(async () => {
      const status = await watched(run);
      return status.blocked ? status : null;
    }, 'the refused signature to block the run');
    expect(blocked!.reason).toContain('SignatureDoesNotMatch');
    await run.executeUpdate(resumeUpdate);
    // The engine dies during a collect. It is stopped first, so that its requests are in flight when it dies.
    const orchestrator = cluster.orchestrators[0]!;
    await until(async () => (await watched(run), orchestrator.hasReached(planned)), 'the plan of step 2');
    const engine = node.enginePid()!;
    process.kill(engine, 'SIGSTOP');
    orchestrator.letGo(planned);
    // At the first heartbeat the sessions are being opened. Some heartbeats later they are open, and the engine has received requests.
    const first = await until(
      async () => (await watched(run)).heartbeat,
      'a heartbeat of the collect',
      240_000,
    );
    await until(
      async () => (await watched(run)).heartbeat >= first + 4,
      'the collect to wait for the engine',
      240_000,
    );
    process.kill(engine, 'SIGKILL');
    await until(async () => (await watched(run), await ended(run)), 'the run to end').catch(
      (error: Error) => {
        throw new Error(`${error.message}
${seen.at(-1)}
${cluster.nodes[0]!.log.slice(-2_000)}`);
      },
    );
    // Temporal no longer accepts the key, so the node cannot report to the pool, and says so.
    gateway.setApiKey('another one');
    await until(
      () => node.log.includes('the pool does not receive this node'),
      'the key to be refused',
      240_000,
    );
  });
  afterAll(async () => {
    vi.unstubAllEnvs();
    await cluster?.stop();
    await Promise.all([gateway?.stop(), tracker?.kill(), booking?.stop(), bucket?.stop()]);
    await s3?.stop();
    rmSync(certificates, { recursive: true });
  });

  /** The run's status. Also keeps, for the search, what Temporal shows of the run's activities. */
  async function watched(handle: RunHandle) {
    const { raw } = await handle.describe();
    seen.push(textsIn(raw).join('\n'));
    const status = await handle.query(statusQuery);
    seen.push(JSON.stringify(status));
    const collect = raw.pendingActivities?.find(({ activityId }) => activityId === 'step-000002/collect');
    return { ...status, heartbeat: Number(collect?.lastHeartbeatTime?.seconds ?? 0) };
  }

  function expectNone(place: string, texts: readonly string[]): void {
    for (const [what, secret] of Object.entries(secrets)) {
      for (const writing of writings(secret)) {
        const found = texts.find((text) => text.includes(writing));
        if (found === undefined) continue;
        const at = found.indexOf(writing);
        expect.fail(`${what} is in ${place}: …${found.slice(Math.max(0, at - 200), at + 100)}…`);
      }
    }
  }

  it('was repeated by every server that knew it, and the run went on', async () => {
    expect(booking.repeated()).toBeGreaterThan(0);
    expect(bucket.repeated()).toBe(1);
    expect((await run.describe()).status.name).toBe('COMPLETED');
    const history = await texts(cluster);
    expect(history.some((text) => text.includes('SignatureDoesNotMatch'))).toBe(true);
    expect(history.some((text) => text.includes('The engine (process'))).toBe(true);
    expect(history.some((text) => text.includes('[secret removed]'))).toBe(true);
  });

  it('is found by this search where it really is', () => {
    for (const secret of Object.values(secrets)) {
      for (const writing of writings(secret)) {
        expect(() => expectNone('a text', [`a ${writing} b`])).toThrow(/is in a text/);
      }
    }
  });

  it('is in no input, history or failure of any workflow', async () => {
    expectNone('the history', await texts(cluster));
  });

  it('is in no heartbeat, pending failure or status', () => {
    expect(seen.length).toBeGreaterThan(10);
    expectNone('what was pending', seen);
  });

  it('is in no log', () => {
    const workers = [...cluster.nodes, ...cluster.orchestrators];
    for (const { name, log } of workers) expectNone(`the log of ${name}`, [log]);
    expect(workers.some(({ log }) => log.includes('[secret removed]'))).toBe(true);
  });

  it('is in no object of the store, including the report', async () => {
    let reports = 0;
    for await (const { key } of cluster.store.list('')) {
      const bytes = Buffer.from((await cluster.store.get(key))!);
      const content = key.endsWith('.gz') ? gunzipSync(bytes) : bytes;
      expectNone(key, [key, content.toString('utf8')]);
      if (key.endsWith('.html')) reports++;
    }
    expect(reports).toBeGreaterThan(0);
  });

  it('is in no file of the processes except the one in which it was given', () => {
    const files = readdirSync(cluster.folder, { recursive: true, encoding: 'utf8' })
      .map((name) => join(cluster.folder, name))
      .filter((path) => statSync(path).isFile() && path !== join(cluster.folder, 'grading-token'));
    expect(files.length).toBeGreaterThan(10);
    for (const path of files) expectNone(relative(cluster.folder, path), [path, readFileSync(path, 'utf8')]);
  });

  it.each([
    ['status', 'secretive', '--json'],
    ['runs', '--json'],
  ])('is not in the output of %s', async (...args) => {
    gateway.setApiKey(secrets['the Temporal API key']);
    const [host, port] = gateway.address.split(':');
    const store = args[0] === 'runs' ? ['--store', cluster.storeAddress] : [];
    const printed = await longhaul(...args, ...store, '--temporal-address', `${host}:${port}`);
    expectNone(args.join(' '), [printed]);
    expect(printed).toContain('secretive');
  });

  it.each([
    ['report', 'secretive', '--json'],
    ['transcripts', 'secretive', '--json'],
    ['show', 'runs/secretive/run.json'],
    ['audit', 'secretive', '--json'],
  ])('is not in the output of %s', async (...args) => {
    expectNone(args.join(' '), [await longhaul(...args, '--store', cluster.storeAddress)]);
  });

  async function longhaul(...args: string[]): Promise<string> {
    const command = promisify(execFile)(resolve('bin/longhaul'), args, {
      cwd: cluster.folder,
      maxBuffer: 1 << 28,
    });
    const { stdout, stderr } = await command.catch(
      (error: unknown) => error as { stdout: string; stderr: string },
    );
    return `${stdout}\n${stderr}`;
  }
});

async function ended(run: RunHandle): Promise<boolean> {
  return (await run.describe()).status.name !== 'RUNNING';
}

/** All strings of every workflow on the server, payloads decoded. */
async function texts(cluster: Cluster): Promise<string[]> {
  const found: string[] = [];
  for await (const { workflowId, runId } of cluster.temporal.client.workflow.list()) {
    const history = await cluster.temporal.client.workflow.getHandle(workflowId, runId).fetchHistory();
    found.push(...textsIn(history));
  }
  return found;
}

/** All strings of a server's answer, and all its bytes as text. */
function textsIn(value: unknown): string[] {
  if (typeof value === 'string') return [value];
  if (value instanceof Uint8Array) return [Buffer.from(value).toString('utf8')];
  if (typeof value !== 'object' || value === null) return [];
  return Object.values(value).flatMap(textsIn);
}
