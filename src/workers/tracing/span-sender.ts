// Sends ended spans to an OTLP receiver over HTTP, in batches. A full queue drops spans, so that no work waits for the receiver. Only a
// process that traces loads this file.
import {
  type Attributes,
  type HrTime,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  TraceFlags,
} from '@opentelemetry/api';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import {
  defaultResource,
  detectResources,
  envDetector,
  resourceFromAttributes,
} from '@opentelemetry/resources';
import {
  BatchSpanProcessor,
  type ReadableSpan,
  SamplingDecision,
  type SpanExporter,
  TraceIdRatioBasedSampler,
} from '@opentelemetry/sdk-trace-base';
import type { TraceSettings } from './settings.js';
import type { SpanPlace } from './span-ids.js';

export interface EndedSpan extends SpanPlace {
  /** Id of the parent span; null for a root span. */
  parent: string | null;
  name: string;
  /** Milliseconds since 1970. */
  startedAt: number;
  endedAt: number;
  failed: boolean;
  attributes: Attributes;
}

export interface SpanSender {
  send(span: EndedSpan): void;
  /** Sends the remaining spans, for at most two seconds. */
  close(): Promise<void>;
}

interface SpanSource {
  /** Service name such as `longhaul-node`; OTEL_SERVICE_NAME replaces it. */
  service: string;
  instance: string;
}

const longestFarewellMs = 2_000;
const scope = { name: 'longhaul' };

export function createSpanSender(
  settings: TraceSettings,
  { service, instance }: SpanSource,
  log: (message: string) => void,
): SpanSender {
  const resource = defaultResource()
    .merge(resourceFromAttributes({ 'service.name': service, 'service.instance.id': instance }))
    .merge(detectResources({ detectors: [envDetector] }));
  const sampler = new TraceIdRatioBasedSampler(settings.ratio);
  const processor = new BatchSpanProcessor(loggingOutages(new OTLPTraceExporter(), log));
  const isSampled = ({ traceId }: EndedSpan): boolean =>
    sampler.shouldSample(ROOT_CONTEXT, traceId).decision === SamplingDecision.RECORD_AND_SAMPLED;
  return {
    send: (span) => {
      if (isSampled(span)) processor.onEnd(readable(span, resource));
    },
    close: async () => {
      const farewell = processor.shutdown().catch(() => undefined);
      let timer: NodeJS.Timeout | undefined;
      const deadline = new Promise<void>((resolve) => {
        timer = setTimeout(resolve, longestFarewellMs);
      });
      await Promise.race([farewell, deadline]);
      clearTimeout(timer);
    },
  };
}

/** Logs one line when the receiver stops accepting spans, and one when it accepts them again. */
function loggingOutages(exporter: SpanExporter, log: (message: string) => void): SpanExporter {
  let failing = false;
  return {
    export: (spans, done) =>
      exporter.export(spans, (result) => {
        // ExportResultCode.SUCCESS is 0.
        const fails = Number(result.code) !== 0;
        if (fails && !failing)
          log(
            `traces do not arrive: ${reasonOf(result.error)}. Runs continue, but spans are dropped until the receiver in ` +
              'OTEL_EXPORTER_OTLP_ENDPOINT accepts them again',
          );
        if (!fails && failing) log('traces arrive again');
        failing = fails;
        done(result);
      }),
    shutdown: () => exporter.shutdown(),
    forceFlush: () => exporter.forceFlush?.() ?? Promise.resolve(),
  };
}

/** The reason in one short line: a receiver may answer with a whole page. */
function reasonOf(error: Error | undefined): string {
  const { code } = (error ?? {}) as { code?: unknown };
  const text = error?.message || (typeof code === 'string' || typeof code === 'number' ? String(code) : '');
  return text.split('\n')[0]?.slice(0, 200) || 'unknown reason';
}

function readable(span: EndedSpan, resource: ReadableSpan['resource']): ReadableSpan {
  const { traceId, spanId, parent, name, startedAt, endedAt, failed, attributes } = span;
  const contextOf = (id: string): ReturnType<ReadableSpan['spanContext']> => ({
    traceId,
    spanId: id,
    traceFlags: TraceFlags.SAMPLED,
  });
  const context = contextOf(spanId);
  return {
    name,
    kind: SpanKind.INTERNAL,
    spanContext: () => context,
    ...(parent === null ? {} : { parentSpanContext: contextOf(parent) }),
    startTime: timeOf(startedAt),
    endTime: timeOf(endedAt),
    duration: timeOf(endedAt - startedAt),
    ended: true,
    status: { code: failed ? SpanStatusCode.ERROR : SpanStatusCode.UNSET },
    attributes,
    links: [],
    events: [],
    resource,
    instrumentationScope: scope,
    droppedAttributesCount: 0,
    droppedEventsCount: 0,
    droppedLinksCount: 0,
  };
}

/** Converts milliseconds to seconds and nanoseconds. */
function timeOf(milliseconds: number): HrTime {
  const seconds = Math.floor(milliseconds / 1000);
  return [seconds, Math.round((milliseconds - seconds * 1000) * 1e6)];
}
