// Compares the metrics that a worker serves with every expression that the dashboard and the alerts use for it.
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTemporal, type TestTemporal } from '../support/servers/temporal-server.js';
import { until } from '../support/until.js';
import { WorkerProcess } from '../support/worker-process.js';
import { freePort } from '../../src/stack/free-port.js';
import { metricsOf } from './metric-names.js';
import { expressionsIn } from './stack-expressions.js';

const expressions = expressionsIn().filter((one) => one.includes('temporal_'));
const script = fileURLToPath(new URL('../../dist/workers/orchestrator-main.js', import.meta.url));

interface Series {
  name: string;
  labels: Record<string, string>;
}

function seriesOf(page: string): Series[] {
  return page
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => {
      const [, name = '', labels = ''] = /^([a-z0-9_]+)(?:\{(.*)\})? /.exec(line) ?? [];
      const pairs = [...labels.matchAll(/([a-z_]+)="((?:[^"\\]|\\.)*)"/g)];
      return { name, labels: Object.fromEntries(pairs.map(([, label = '', value = '']) => [label, value])) };
    });
}

/** Labels in an expression: `one{a="b"}` selects by a, `by (c)` groups by c. `le` is a histogram's own label. */
function labelsOf(expression: string): { selected: [string, string][]; grouped: string[] } {
  const selected = [...expression.matchAll(/([a-z_]+)="([^"]*)"/g)].map(
    ([, label = '', value = '']): [string, string] => [label, value],
  );
  const grouped = [...expression.matchAll(/\bby \(([^)]*)\)/g)].flatMap(([, names = '']) =>
    names.split(', '),
  );
  return { selected, grouped };
}

describe('an orchestrator', () => {
  let folder: string;
  let temporal: TestTemporal;
  const started: WorkerProcess[] = [];
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'longhaul-metrics-'));
    temporal = await startTemporal();
  });
  afterAll(async () => {
    for (const worker of started) await worker.stop();
    await temporal.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  const start = async (name: string, more: readonly string[]): Promise<WorkerProcess> => {
    const worker = await WorkerProcess.start({
      ...{ name, script, folder: join(folder, name), temporal: temporal.address },
      args: ['--namespace', 'default', '--store', `dir:${join(folder, 'store')}`, ...more],
    });
    started.push(worker);
    return worker;
  };
  const page = async (address: string): Promise<string> => {
    const reply = await fetch(`http://${address}/metrics`, { signal: AbortSignal.timeout(5_000) });
    return reply.text();
  };

  it('serves every metric of Temporal’s SDK that the dashboard or an alert reads, with its labels', async () => {
    const address = `127.0.0.1:${await freePort()}`;
    await start('measured', ['--metrics-address', address]);
    // A run with a bad spec fails an activity, and an unknown workflow type fails a workflow task.
    for (const type of ['trainingRun', 'noSuchWorkflow'])
      await temporal.client.workflow.start(type, {
        taskQueue: 'longhaul',
        workflowId: `train/${type}`,
        args: [{ no: 'spec' }],
      });
    expect(expressions.length).toBeGreaterThan(6);
    const missing = (series: readonly Series[]): string[] =>
      expressions.flatMap((expression) => {
        const { selected, grouped } = labelsOf(expression);
        return metricsOf(expression)
          .filter((metric) => metric.startsWith('temporal_'))
          .filter(
            (metric) =>
              !series.some(
                ({ name, labels }) =>
                  name === metric &&
                  selected.every(([label, value]) => labels[label] === value) &&
                  grouped.every((label) => label in labels),
              ),
          )
          .map((metric) => `${metric} of ${expression}`);
      });
    let left: string[] = [];
    await until(
      async () => {
        left = missing(seriesOf(await page(address).catch(() => '')));
        return left.length === 0;
      },
      'all of them',
      240_000,
    ).catch(() => undefined);
    expect(left).toEqual([]);
  });

  it('has buckets in milliseconds, up to ten hours for long rollouts', async () => {
    const address = /http:\/\/([^/]+)\/metrics/.exec(started[0]?.log ?? '')?.[1] ?? '';
    const buckets = seriesOf(await page(address))
      .filter(({ name }) => name === 'temporal_activity_execution_latency_bucket')
      .map(({ labels }) => Number(labels['le']));
    expect(Math.max(...buckets.filter(Number.isFinite))).toBe(10 * 3_600_000);
  });

  it('works without metrics if their port is taken, and says so once', async () => {
    const taken = createServer().listen(0, '127.0.0.1');
    await new Promise((resolve) => taken.once('listening', resolve));
    try {
      const { port } = taken.address() as { port: number };
      const address = `127.0.0.1:${port}`;
      const worker = await start('unmeasured', ['--metrics-address', address]);
      const told = (): string[] => worker.log.split('\n').filter((line) => line.includes(address));
      await until(() => told().length > 0, 'the line about the port');
      const { workflowService } = temporal.client;
      await until(
        async () => {
          const { pollers } = await workflowService.describeTaskQueue({
            namespace: 'default',
            taskQueue: { name: 'longhaul' },
            taskQueueType: 1,
          });
          return pollers?.some(({ identity }) => identity === `orchestrator ${worker.pid}`);
        },
        'the worker to ask for work',
        240_000,
      );
      expect(told()).toHaveLength(1);
      expect(JSON.parse(told()[0] ?? '')).toMatchObject({
        level: 'warn',
        message:
          `no metrics are served at ${address}: another process listens there. This worker runs without metrics; to serve ` +
          'them, give it another --metrics-address or LONGHAUL_METRICS_ADDRESS and start it again',
      });
    } finally {
      taken.close();
    }
  });
});
