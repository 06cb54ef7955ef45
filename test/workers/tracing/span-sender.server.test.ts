// Sends spans to a receiver that answers, and to a receiver that hangs.
import { createHash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { OtlpReceiver } from '../../support/servers/otlp-receiver.js';
import { until } from '../../support/until.js';
import { createSpanSender, type EndedSpan } from '../../../src/workers/tracing/span-sender.js';

const spanOf = (index: number): EndedSpan => ({
  // An id of only zeros is invalid in OpenTelemetry, so ids begin at 1.
  traceId: (index + 1).toString(16).padStart(32, '0'),
  spanId: (index + 1).toString(16).padStart(16, '0'),
  ...{ parent: index === 0 ? null : 'a'.repeat(16), name: 'part', failed: index === 1 },
  startedAt: 1_700_000_000_000.25,
  endedAt: 1_700_000_001_500.5,
  attributes: { 'longhaul.step': index },
});

describe('a sender of spans', () => {
  let receiver: OtlpReceiver;
  const said: string[] = [];
  const sender = (ratio = 1) =>
    createSpanSender({ ratio }, { service: 'longhaul-node', instance: 'n1' }, (line) => said.push(line));
  beforeAll(async () => {
    receiver = await OtlpReceiver.start();
    vi.stubEnv('OTEL_EXPORTER_OTLP_ENDPOINT', receiver.url);
    vi.stubEnv('OTEL_EXPORTER_OTLP_HEADERS', 'x-key=k1');
    vi.stubEnv('OTEL_BSP_SCHEDULE_DELAY', '50');
    vi.stubEnv('OTEL_EXPORTER_OTLP_TIMEOUT', '500');
  });
  afterAll(async () => {
    await receiver.stop();
    vi.unstubAllEnvs();
  });

  it('sends ids, times, status and figures unchanged, with the headers from the environment', async () => {
    const one = sender();
    one.send(spanOf(0));
    one.send(spanOf(1));
    await one.close();
    expect(receiver.headers[0]).toMatchObject({ 'x-key': 'k1', 'content-type': 'application/json' });
    expect(receiver.spans).toEqual([
      {
        traceId: `${'0'.repeat(31)}1`,
        spanId: '0000000000000001',
        ...{ parent: null, name: 'part', failed: false, service: 'longhaul-node' },
        ...{ startedAt: 1_700_000_000_000.25, endedAt: 1_700_000_001_500.5 },
        attributes: { 'longhaul.step': 0 },
      },
      expect.objectContaining({ parent: 'a'.repeat(16), failed: true }),
    ]);
  });

  it('keeps or drops whole traces: every process makes the same choice', async () => {
    const traces = Array.from({ length: 400 }, (_, index) => ({
      ...spanOf(index),
      traceId: createHash('sha256').update(`${index}`).digest('hex').slice(0, 32),
    }));
    const kept = async (): Promise<string[]> => {
      receiver.spans.length = 0;
      const one = sender(0.25);
      for (const span of traces) one.send(span);
      await one.close();
      return receiver.spans.map(({ traceId }) => traceId).sort();
    };
    const first = await kept();
    // A quarter of 400 is 100; five standard deviations are 43.
    expect(first.length).toBeGreaterThan(57);
    expect(first.length).toBeLessThan(143);
    expect(await kept()).toEqual(first);
  });

  it('does not wait for a receiver that hangs, holds a limited number of spans, and logs the problem once', async () => {
    receiver.hangs = true;
    said.length = 0;
    const one = sender();
    const began = performance.now();
    for (let index = 0; index < 50_000; index += 1) one.send(spanOf(index));
    expect((performance.now() - began) / 50_000).toBeLessThan(0.2);
    await until(() => said.length > 0, 'the line about the receiver');
    receiver.spans.length = 0;
    receiver.hangs = false;
    await until(() => said.includes('traces arrive again'), 'spans to arrive again');
    expect(said).toHaveLength(2);
    expect(said[0]).toMatch(/^traces do not arrive: .+\. Runs continue/);
    await one.close();
    expect(receiver.spans.length).toBeLessThanOrEqual(2048 + 512);
  });

  it('closes within its time limit even if the receiver hangs', async () => {
    receiver.hangs = true;
    vi.stubEnv('OTEL_EXPORTER_OTLP_TIMEOUT', '60000');
    const one = sender();
    one.send(spanOf(0));
    const began = performance.now();
    await one.close();
    const seconds = (performance.now() - began) / 1000;
    expect(seconds).toBeGreaterThan(1.9);
    expect(seconds).toBeLessThan(20);
    receiver.hangs = false;
  });
});
