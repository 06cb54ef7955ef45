// OpenTelemetry's variables decide whether a worker traces; an unsupported setting gives an error.
import { describe, expect, it } from 'vitest';
import { withoutKnownSecrets } from '../../../src/base/known-secrets.js';
import { readTraceSettings } from '../../../src/workers/tracing/settings.js';

const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:4318' };

describe('traces', () => {
  it.each([
    [{}],
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: '' }],
    [{ ...endpoint, OTEL_TRACES_EXPORTER: 'none' }],
    [{ ...endpoint, OTEL_SDK_DISABLED: 'true' }],
  ])('are off with %j', (env) => {
    expect(readTraceSettings(env)).toBeNull();
  });

  it.each([
    [endpoint, 1],
    [{ OTEL_TRACES_EXPORTER: 'otlp' }, 1],
    [{ OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'https://host/v1/traces' }, 1],
    [{ ...endpoint, OTEL_TRACES_SAMPLER: 'traceidratio', OTEL_TRACES_SAMPLER_ARG: '0.1' }, 0.1],
    [{ ...endpoint, OTEL_TRACES_SAMPLER: 'parentbased_traceidratio', OTEL_TRACES_SAMPLER_ARG: '0.5' }, 0.5],
    [{ ...endpoint, OTEL_TRACES_SAMPLER: 'parentbased_always_off' }, 0],
  ])('are on with %j', (env, ratio) => {
    expect(readTraceSettings(env)).toEqual({ ratio });
  });

  it.each([
    [{ OTEL_TRACES_EXPORTER: 'jaeger' }, /takes otlp or none; "jaeger" is neither/],
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: 'user:secret@host' }, /is not a URL; it takes one such as/],
    [{ ...endpoint, OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' }, /name the receiver’s HTTP port/],
    [{ ...endpoint, OTEL_TRACES_SAMPLER: 'xray' }, /takes always_on, always_off, or traceidratio/],
    [
      { ...endpoint, OTEL_TRACES_SAMPLER: 'traceidratio', OTEL_TRACES_SAMPLER_ARG: '10' },
      /a share from 0 to 1 in OTEL_TRACES_SAMPLER_ARG/,
    ],
  ])('are refused with %j', (env, message) => {
    expect(() => readTraceSettings(env)).toThrow(message);
    expect(() => readTraceSettings(env)).not.toThrow(/secret/);
  });

  it('have headers whose values never appear in logs', () => {
    readTraceSettings({
      ...endpoint,
      OTEL_EXPORTER_OTLP_HEADERS: 'authorization=Bearer%20abcdefgh12345678,x-team=y',
    });
    expect(withoutKnownSecrets('refused: Bearer abcdefgh12345678')).not.toContain('abcdefgh12345678');
  });
});
