// Reads the tracing settings from the same variables as OpenTelemetry's SDKs. Does not load OpenTelemetry.
import { keepSecret } from '../../base/known-secrets.js';

export interface TraceSettings {
  /** Share of traces to keep, from 0 to 1. All spans of a trace are kept or dropped together, from every worker. */
  ratio: number;
}

/** Null if no traces are requested. For an unsupported setting, throws an error that lists the supported ones. */
export function readTraceSettings(env: NodeJS.ProcessEnv = process.env): TraceSettings | null {
  const exporter = env['OTEL_TRACES_EXPORTER'] || null;
  const endpoint = env['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT'] || env['OTEL_EXPORTER_OTLP_ENDPOINT'] || null;
  if (env['OTEL_SDK_DISABLED']?.toLowerCase() === 'true') return null;
  if (exporter === 'none' || (exporter === null && endpoint === null)) return null;
  if (exporter !== null && exporter !== 'otlp')
    throw new Error(
      `OTEL_TRACES_EXPORTER takes otlp or none; ${JSON.stringify(exporter.slice(0, 40))} is neither`,
    );
  if (endpoint !== null) checkEndpoint(endpoint);
  const protocol = env['OTEL_EXPORTER_OTLP_TRACES_PROTOCOL'] || env['OTEL_EXPORTER_OTLP_PROTOCOL'] || null;
  if (protocol === 'grpc')
    throw new Error(
      'OTEL_EXPORTER_OTLP_PROTOCOL is grpc, but traces are sent over HTTP: name the receiver’s HTTP port (usually 4318) in ' +
        'OTEL_EXPORTER_OTLP_ENDPOINT, and set the protocol to http/json, or leave it unset',
    );
  for (const name of ['OTEL_EXPORTER_OTLP_HEADERS', 'OTEL_EXPORTER_OTLP_TRACES_HEADERS'])
    for (const pair of env[name]?.split(',') ?? []) keepHeader(pair);
  return { ratio: ratioOf(env['OTEL_TRACES_SAMPLER'] || 'parentbased_always_on', env) };
}

/** Throws if the endpoint is not valid. The error does not repeat it, as it may contain a password. */
function checkEndpoint(endpoint: string): void {
  if (URL.canParse(endpoint) && /^https?:$/.test(new URL(endpoint).protocol)) return;
  throw new Error('OTEL_EXPORTER_OTLP_ENDPOINT is not a URL; it takes one such as http://127.0.0.1:4318');
}

/** Remembers a header's value as a secret: usually it is the receiver's key. `pair`: `key=value`, percent-encoded. */
function keepHeader(pair: string): void {
  const value = pair.slice(pair.indexOf('=') + 1).trim();
  if (value === '') return;
  keepSecret(value);
  try {
    keepSecret(decodeURIComponent(value));
  } catch {
    // The value is not percent-encoded, and is sent unchanged.
  }
}

function ratioOf(sampler: string, env: NodeJS.ProcessEnv): number {
  const name = sampler.replace(/^parentbased_/, '');
  if (name === 'always_on') return 1;
  if (name === 'always_off') return 0;
  const ratio = Number(env['OTEL_TRACES_SAMPLER_ARG'] || '1');
  if (name === 'traceidratio' && ratio >= 0 && ratio <= 1) return ratio;
  throw new Error(
    'OTEL_TRACES_SAMPLER takes always_on, always_off, or traceidratio with a share from 0 to 1 in OTEL_TRACES_SAMPLER_ARG',
  );
}
