// Runs the processes of docker-compose.yml, with its commands and variables, outside of containers: PostgreSQL, the Temporal server of the
// image, the S3 server, environments, orchestrator, follower and node. A run continues over a restart of the server, and the node saves its
// state and leaves when it is asked to.
import { execFile } from 'node:child_process';
import { accessSync, constants, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { searchAttributes } from '../../src/workers/temporal/temporal-server.js';
import { freePort } from '../../src/stack/free-port.js';
import { findEngine, findTemporal, findVersitygw } from '../support/find-tools.js';
import { repository } from '../support/repository.js';
import { smallRun } from '../support/small-run.js';
import { Stuck, until } from '../support/until.js';
import { type PostgresServer, startPostgres, whyNoPostgres } from './postgres-server.js';
import { serverMetrics } from './metric-names.js';
import { filledIn, read, readCompose, type Service } from './stack-files.js';
import {
  bareEnvironment,
  placed,
  placedEnvironment,
  type Places,
  type StackProcess,
  startProcess,
} from './stack-processes.js';

const run = promisify(execFile);
const variables = filledIn();
const compose = readCompose(variables);
/** Services whose metrics Prometheus scrapes. */
const scraped = ['orchestrator', 'follower', 'node-cpu'];

const service = (name: string): Service => {
  const one = compose.services[name];
  if (!one) throw new Error(`there is no service ${name}`);
  return one;
};

/** Folder of the Temporal server's binary, which also holds temporal-sql-tool. Null if the server is not built. */
function temporalServerFolder(): string | null {
  const note = join(repository, 'dist/temporal-server-path');
  const path =
    process.env['LONGHAUL_TEMPORAL_SERVER'] ??
    (existsSync(note) ? read('dist/temporal-server-path').trim() : '');
  try {
    accessSync(path, constants.X_OK);
    return dirname(path);
  } catch {
    return null;
  }
}

function whySkipped(): string | null {
  if (!temporalServerFolder())
    return 'the Temporal server is not built: node tools/setup.mjs --only temporal-server (10 minutes, once)';
  if (!existsSync(join(repository, 'dist/cli/main.js'))) return 'dist/ is missing: npm run build';
  return whyNoPostgres();
}

const skipped = whySkipped();

describe.skipIf(skipped !== null)(`the stack${skipped ? ` (skipped: ${skipped})` : ''}`, () => {
  // The body of a skipped suite still runs, so it must not create anything then.
  const folder = skipped ? '' : mkdtempSync(join(tmpdir(), 'longhaul-compose-'));
  const path = skipped
    ? []
    : [temporalServerFolder() ?? '', dirname(findTemporal()), dirname(findVersitygw())];
  const processes: StackProcess[] = [];
  let postgres: PostgresServer;
  let places: Places = [];
  const ports: Record<string, number> = {};
  const port = (name: string): number => ports[name] ?? 0;

  beforeAll(async () => {
    postgres = await startPostgres();
    const names = [
      'temporal',
      'http',
      'frontend',
      'history',
      'matching',
      'worker',
      'historyGrpc',
      'matchingGrpc',
    ];
    for (const name of [...names, 'workerGrpc', 'metrics', 's3', 'environments', ...scraped])
      ports[name] = await freePort();
    const token = join(folder, 'grading-token');
    writeFileSync(token, variables['LONGHAUL_GRADING_TOKEN'] ?? '');
    mkdirSync(join(folder, 'data'));
    places = [
      ['temporal:7233', `127.0.0.1:${port('temporal')}`],
      ['127.0.0.1:7243', `127.0.0.1:${port('http')}`],
      ['http://s3:7070', `http://127.0.0.1:${port('s3')}`],
      ['http://127.0.0.1:7070', `http://127.0.0.1:${port('s3')}`],
      [':7070', `127.0.0.1:${port('s3')}`],
      ['http://environments:8000', `http://127.0.0.1:${port('environments')}`],
      ['http://127.0.0.1:8000', `http://127.0.0.1:${port('environments')}`],
      ['/run/secrets/grading_token', token],
      ['/infra/', `${join(repository, 'infra/temporal')}/`],
      ['/data', join(folder, 'data')],
      ['made-up-postgres_password', postgres.password],
      ['http://127.0.0.1:9465', `http://127.0.0.1:${port('follower')}`],
    ];
  });

  afterAll(async () => {
    await Promise.all(processes.map((one) => one.leave(15_000)));
    await postgres?.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  /** Runs a service that ends by itself, as in its container. Returns its output. */
  async function runService(name: string, more: Record<string, string> = {}): Promise<string> {
    const { entrypoint = [], environment } = service(name);
    const [program = '', ...args] = entrypoint.map((word) => placed(word, places));
    const env = { ...bareEnvironment(path), ...placedEnvironment(environment, places), ...more };
    const { stdout, stderr } = await run(program, args, { env, timeout: 120_000 });
    return stdout + stderr;
  }

  function startService(name: string, more: Record<string, string | number> = {}): StackProcess {
    const { command, entrypoint = [], environment } = service(name);
    const words = [...entrypoint, ...(command ?? [])].map((word) => placed(word, places));
    const one = startProcess(
      { name, command: words, environment: { ...placedEnvironment(environment, places), ...more }, folder },
      path,
    );
    processes.push(one);
    return one;
  }

  /** Starts the program that the image's entrypoint script finally starts. Only ports and addresses differ from its variables. */
  function startTemporalServer(): StackProcess {
    const one = startProcess(
      {
        name: 'temporal',
        folder,
        command: ['temporal-server', 'start'],
        environment: {
          ...placedEnvironment(service('temporal').environment, places),
          ...{ POSTGRES_SEEDS: '127.0.0.1', DB_PORT: postgres.port },
          ...{ BIND_ON_IP: '127.0.0.1', PROMETHEUS_ENDPOINT: `127.0.0.1:${port('metrics')}` },
          ...{ FRONTEND_GRPC_PORT: port('temporal'), FRONTEND_HTTP_PORT: port('http') },
          ...{ FRONTEND_MEMBERSHIP_PORT: port('frontend'), HISTORY_MEMBERSHIP_PORT: port('history') },
          ...{ MATCHING_MEMBERSHIP_PORT: port('matching'), WORKER_MEMBERSHIP_PORT: port('worker') },
          ...{ HISTORY_GRPC_PORT: port('historyGrpc'), MATCHING_GRPC_PORT: port('matchingGrpc') },
          ...{ WORKER_GRPC_PORT: port('workerGrpc') },
        },
      },
      path,
    );
    processes.push(one);
    return one;
  }

  /** Waits until the service's own health check passes: `wget URL`, or the workers' script. */
  async function healthy(name: string, one: StackProcess, workerFolder?: string): Promise<void> {
    const check = service(name).healthcheck?.test ?? [];
    const url = /http:\/\/127\.0\.0\.1:\d+[^'" )]*/.exec(
      check.map((word) => placed(word, places)).join(' '),
    )?.[0];
    await until(
      async () => {
        if (one.child.exitCode !== null) throw new Stuck(`${name} has ended: ${one.log().slice(-2_000)}`);
        if (url) return (await fetch(url, { signal: AbortSignal.timeout(5_000) })).ok;
        const script = check.slice(1).map((word) => (word === 'node' ? process.execPath : word));
        await run(script[0] ?? '', [...script.slice(1), workerFolder ?? ''], { cwd: repository });
        return true;
      },
      `${name} to be healthy`,
      120_000,
    ).catch((error: Error) => {
      throw new Error(`${error.message}\n${one.log().slice(-2_000)}`);
    });
  }

  const database = () => ({ SQL_HOST: '127.0.0.1', SQL_PORT: String(postgres.port) });
  const worker = (name: string) => ({
    // In containers each service has its own address; here they have ports on one machine.
    ...(scraped.includes(name) ? { LONGHAUL_METRICS_ADDRESS: `127.0.0.1:${port(name)}` } : {}),
    LONGHAUL_FOLDER: join(folder, name),
    // In the image the engine is installed.
    LONGHAUL_ENGINE: findEngine(),
  });

  async function longhaul(...args: string[]): Promise<string> {
    const { environment } = service('orchestrator');
    const env = { ...bareEnvironment(path), ...placedEnvironment(environment, places), ...worker('cli') };
    const { stdout } = await run(process.execPath, [join(repository, 'dist/cli/main.js'), ...args], {
      ...{ env, cwd: folder, timeout: 240_000 },
    });
    return stdout;
  }

  test('the schemas are created once, and then left unchanged', async () => {
    expect(await runService('temporal-schema', database())).toContain('the schemas are current');
    expect(await runService('temporal-schema', database())).toContain('the schemas are current');
  });

  test('the server serves from PostgreSQL, and has its namespace and search attributes', async () => {
    await healthy('temporal', startTemporalServer());
    await runService('temporal-bootstrap');
    const again = await runService('temporal-bootstrap');
    expect(again).toContain('namespace default is there');
    for (const name of Object.keys(searchAttributes))
      expect(again).toContain(`search attribute ${name} is there`);
  });

  test('the server accepts the dynamic configuration without a complaint', async () => {
    const file = join(repository, 'infra/temporal/dynamic-config.yaml');
    const { stdout } = await run('temporal-server', ['validate-dynamic-config', file], {
      env: bareEnvironment(path),
    });
    expect(stdout.trim()).toBe(file);
  });

  test('S3 server, environments, orchestrator, follower and node become healthy', async () => {
    await healthy('s3', startService('s3'));
    const { command = [] } = service('environments');
    const [, entry = '', ...flags] = command.map((word) =>
      word === '8000' ? String(port('environments')) : word,
    );
    const environments = startProcess(
      {
        ...{ name: 'environments', folder },
        command: ['node', join(repository, entry), ...flags],
        environment: placedEnvironment(service('environments').environment, places),
      },
      path,
    );
    processes.push(environments);
    await healthy('environments', environments);
    for (const name of ['orchestrator', 'follower', 'node-cpu'])
      await healthy(name, startService(name, worker(name)), join(folder, name));
    const nodes = await until(async () => {
      const output = await longhaul('nodes', '--json');
      return output.includes('node-cpu') ? output : null;
    }, 'the node to be known');
    expect(nodes).toContain('node-cpu');
  });

  test('a run continues over a restart of the Temporal server, and ends', async () => {
    const { named } = await smallRun(join(folder, 'run'));
    const file = join(folder, 'run.json');
    writeFileSync(file, JSON.stringify(named('composed')));
    await longhaul('train', file, '--detach', '--json');
    // Pause the run, so that it is certainly open when the server stops.
    await longhaul('pause', 'composed');
    const first = processes.find(({ name }) => name === 'temporal');
    expect(await first?.leave(30_000)).toBe(0);
    await healthy('temporal', startTemporalServer());
    await longhaul('resume', 'composed');
    const result = JSON.parse(await longhaul('train', file, '--json')) as { ended: string; step: number };
    expect(result).toMatchObject({ ended: 'completed', step: 4 });
    expect(await longhaul('audit', 'composed')).toContain('violations   none');
  });

  test('the server has the metrics that dashboard and alerts read', async () => {
    const text = await (await fetch(`http://127.0.0.1:${port('metrics')}/metrics`)).text();
    for (const name of serverMetrics) expect(text, name).toMatch(new RegExp(`^${name}(_bucket)?\\{`, 'm'));
    // The alert expects seconds. In milliseconds, no query of this database would take less than a half.
    const total = (suffix: string): number =>
      [...text.matchAll(new RegExp(`^persistence_latency_${suffix}\\{.*\\} (\\S+)$`, 'gm'))]
        .map(([, value]) => Number(value))
        .reduce((sum, value) => sum + value, 0);
    expect(total('count')).toBeGreaterThan(100);
    expect(total('sum') / total('count')).toBeLessThan(0.5);
    expect(text).toMatch(/^persistence_latency_bucket\{.*le="0\.0\d+".*\}/m);
  });

  test('Prometheus finds the expected metrics at each address', async () => {
    const page = async (name: string): Promise<string> =>
      (await fetch(`http://127.0.0.1:${port(name)}/metrics`, { signal: AbortSignal.timeout(5_000) })).text();
    expect(await page('orchestrator')).toMatch(/^temporal_num_pollers\{.*task_queue="longhaul"/m);
    expect(await page('node-cpu')).toMatch(
      /^temporal_activity_execution_latency_bucket\{.*"collectRollouts"/m,
    );
    const steps = await until(
      async () => /^longhaul_step\{run="composed"\} (\d+)$/m.exec(await page('follower'))?.[1],
      'the follower to tell how the run stands',
    );
    expect(Number(steps)).toBe(4);
  });

  test('the node leaves within its grace period, then the other processes leave', async () => {
    for (const [name, limitMs] of [
      ['node-cpu', 75_000],
      ['orchestrator', 20_000],
      ['follower', 20_000],
    ] as const) {
      const one = processes.find((each) => each.name === name);
      expect(await one?.leave(limitMs), one?.log().slice(-1_000)).toBe(0);
    }
  });
});
