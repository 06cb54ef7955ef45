// A run with traces, from its workflow to the engine's verbs. Traces survive the death of an orchestrator and of a node; a receiver that
// hangs does not disturb the run; and no text of an episode gets into a trace.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Cluster } from '../support/cluster/cluster.js';
import { testToken } from '../support/servers/environment-process.js';
import { OtlpReceiver, type ReceivedSpan } from '../support/servers/otlp-receiver.js';
import { smallRun } from '../support/small-run.js';
import { until } from '../support/until.js';

/** Tolerance in ms: workflows use the server's clock and workers their own, read at different moments. */
const tolerance = 100;
const key = 'k3y-of-the-receiver';

function environmentOf(receiver: OtlpReceiver): Record<string, string> {
  return {
    OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url,
    OTEL_EXPORTER_OTLP_HEADERS: `authorization=Bearer%20${key}`,
    OTEL_BSP_SCHEDULE_DELAY: '200',
  };
}

class Trace {
  constructor(readonly spans: readonly ReceivedSpan[]) {}

  get root(): ReceivedSpan {
    const roots = this.spans.filter(({ parent }) => parent === null);
    expect(roots.map(({ name }) => name)).toEqual(['step']);
    return roots[0]!;
  }

  below(parent: ReceivedSpan): ReceivedSpan[] {
    return this.spans.filter((span) => span.parent === parent.spanId);
  }

  /** The child span with this name; if there are several, the one that began last. */
  child(parent: ReceivedSpan, name: string): ReceivedSpan {
    const [newest] = this.below(parent)
      .filter((span) => span.name === name)
      .sort((a, b) => b.startedAt - a.startedAt);
    if (!newest)
      throw new Error(
        `${parent.name} has no ${name}, but ${this.below(parent)
          .map((one) => one.name)
          .join(', ')}`,
      );
    return newest;
  }
}

describe('the traces of a run', () => {
  let receiver: OtlpReceiver;
  let cluster: Cluster;
  beforeAll(async () => {
    receiver = await OtlpReceiver.start();
    cluster = await Cluster.start({ env: environmentOf(receiver) });
  });
  afterAll(async () => {
    await cluster.stop();
    await receiver.stop();
  });

  it('reach from each step’s workflow to the engine’s verbs, even if processes die on the way', async () => {
    const spec = (await smallRun(join(cluster.folder, 'data'))).named('traced');
    const [orchestrator, node] = [cluster.orchestrators[0]!, cluster.nodes[0]!];
    const point = 'update-computed.step-000003.update';
    node.hold(point);
    const run = await cluster.run(spec);
    await until(() => node.hasReached(point), 'the third step’s update');
    // Spans that are already sent are not lost when their process dies.
    const isSent = (span: string, step: number): boolean =>
      receiver.spans.some(({ name, attributes }) => name === span && attributes['longhaul.step'] === step);
    await until(
      () => isSent('step', 2) && isSent('planStep', 3) && isSent('collectRollouts', 3),
      'the spans of what has ended',
      240_000,
    );
    await orchestrator.kill();
    orchestrator.start();
    await node.kill();
    node.letGo(point);
    node.start();
    const { step: steps } = await cluster.ended(run);
    expect(steps).toBe(4);
    const traceOf = (step: number): Trace => {
      const root = receiver.spans.find(
        ({ name, attributes }) => name === 'step' && attributes['longhaul.step'] === step,
      );
      return new Trace(receiver.spans.filter(({ traceId }) => traceId === root?.traceId));
    };
    await until(
      () => traceOf(steps).spans.some(({ name }) => name === 'engine update'),
      'the last step’s spans',
      240_000,
    );

    expect(new Set(receiver.spans.map(({ spanId }) => spanId)).size).toBe(receiver.spans.length);
    for (let step = 1; step <= steps; step += 1) {
      const trace = traceOf(step);
      const { root } = trace;
      expect(root).toMatchObject({ service: 'longhaul-orchestrator', failed: false });
      expect(root.attributes).toMatchObject({
        'longhaul.run': 'traced',
        'temporal.workflow_id': 'train/traced',
        'temporal.run_id': run.firstExecutionRunId,
      });
      expect(trace.child(root, 'planStep').service).toBe('longhaul-orchestrator');
      const update = trace.child(root, 'updatePolicy');
      expect(update).toMatchObject({ service: 'longhaul-node', failed: false });
      for (const part of ['seal', 'ensurePolicy', 'engine update']) {
        const span = trace.child(update, part);
        expect(span.startedAt).toBeGreaterThanOrEqual(update.startedAt - tolerance);
        expect(span.endedAt).toBeLessThanOrEqual(update.endedAt + tolerance);
      }
      expect(update.startedAt).toBeGreaterThanOrEqual(root.startedAt - tolerance);
      expect(update.endedAt).toBeLessThanOrEqual(root.endedAt + tolerance);
      if (step === 1) continue;
      const collect = trace.child(root, 'collectRollouts');
      expect(collect.attributes).toMatchObject({ 'longhaul.graded': 8, 'longhaul.unknown': 0 });
      const episodes = trace.child(collect, 'episodes');
      const generate = trace.child(episodes, 'engine generate');
      expect(generate.attributes['longhaul.tokens']).toBe(collect.attributes['longhaul.tokens']);
      expect(generate.attributes['longhaul.calls']).toBeGreaterThanOrEqual(8);
      expect(generate.attributes['longhaul.busy_ms']).toBeGreaterThan(0);
      expect(trace.child(episodes, 'environment grade').attributes['longhaul.calls']).toBe(8);
      // Thousands of calls are summed up in a few spans.
      expect(trace.spans.length).toBeLessThan(40);
    }

    // The spans of the dead node are lost. The next attempt is in the same trace, and shows what it restored.
    const third = traceOf(3);
    const update = third.child(third.root, 'updatePolicy');
    expect(update.attributes['temporal.attempt']).toBeGreaterThan(1);
    const restored = third.below(third.child(update, 'ensurePolicy')).map(({ name }) => name);
    expect(restored.some((name) => /^engine (load|load_state|load_weights|update)$/.test(name))).toBe(true);
  });

  it('contain names, ids and figures, and no text of an episode', () => {
    const known =
      /^(longhaul\.(run|step|queued_ms|graded|unknown|tokens|calls|failed_calls|busy_ms|slowest_ms)|temporal\.(workflow_id|run_id|activity_id|attempt|task_queue)|error\.type)$/;
    const names = new Set(receiver.spans.flatMap(({ attributes }) => Object.keys(attributes)));
    for (const name of names) expect(name).toMatch(known);
    const values = receiver.spans.flatMap(({ attributes }) => Object.values(attributes));
    for (const value of values) if (typeof value === 'string') expect(value).toMatch(/^[\w./:-]{1,120}$/);
    const prompts = readFileSync(join(cluster.folder, 'data', 'tasks.jsonl'), 'utf8')
      .trim()
      .split('\n')
      .map((line) => (JSON.parse(line) as { prompt: string }).prompt);
    for (const text of [...prompts, testToken, key, '<tool_call>'])
      expect(receiver.bodies).not.toContain(text);
    expect(receiver.headers.every(({ authorization }) => authorization === `Bearer ${key}`)).toBe(true);
  });

  it('do not disturb a run if the receiver hangs, and the workers report it once', async () => {
    receiver.hangs = true;
    const before = receiver.requests;
    const spec = (await smallRun(join(cluster.folder, 'more-data'))).named('hanging');
    const { ended, step } = await cluster.ended(await cluster.run(spec));
    expect({ ended, step }).toEqual({ ended: 'completed', step: 4 });
    expect(receiver.requests).toBeGreaterThan(before);
    const told = (): string[] =>
      cluster.nodes[0]!.log.split('\n').filter((line) => line.includes('traces do not arrive'));
    await until(() => told().length > 0, 'the node to tell of it');
    expect(told()).toHaveLength(1);
    expect(cluster.nodes[0]!.log).not.toContain(key);
    const { code, seconds } = await cluster.nodes[0]!.leave();
    expect(code).toBe(0);
    expect(seconds).toBeLessThan(25);
  });
});

describe('OpenTelemetry', () => {
  it('is loaded only by a worker that traces', async () => {
    const receiver = await OtlpReceiver.start();
    const cluster = await Cluster.start({ nodes: 0, orchestrators: 0 });
    try {
      const hook = join(cluster.folder, 'loaded.cjs');
      writeFileSync(
        hook,
        `process.on('exit', () => require('node:fs').writeFileSync(process.env.LOADED,
          Object.keys(require.cache).filter((path) => /@opentelemetry.(sdk|otlp|exporter|resources)/.test(path)).join('\\n')));`,
      );
      const loadedBy = async (name: string, env: Record<string, string>): Promise<string> => {
        const file = join(cluster.folder, `${name}.loaded`);
        const node = await cluster.startNode(name, [], {
          ...env,
          LOADED: file,
          NODE_OPTIONS: `--require ${hook}`,
        });
        await until(async () => {
          const { pollers } = await cluster.temporal.client.workflowService.describeTaskQueue({
            namespace: 'default',
            taskQueue: { name: `longhaul-node.${name}.gpu` },
            taskQueueType: 2,
          });
          return pollers?.length;
        }, `${name} to ask for work`);
        await node.leave();
        return readFileSync(file, 'utf8');
      };
      expect(await loadedBy('silent', {})).toBe('');
      expect(await loadedBy('tracing', environmentOf(receiver))).toContain('exporter-trace-otlp-http');
    } finally {
      await cluster.stop();
      await receiver.stop();
    }
  });
});
