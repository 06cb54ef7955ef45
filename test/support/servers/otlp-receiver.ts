// An OTLP/HTTP receiver: it accepts spans as JSON on /v1/traces, or does not answer.
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';

interface AnyValue {
  stringValue?: string;
  intValue?: number | string;
  doubleValue?: number;
  boolValue?: boolean;
}
interface Attribute {
  key: string;
  value: AnyValue;
}
interface WireSpan {
  traceId: string;
  spanId: string;
  parentSpanId?: string;
  name: string;
  startTimeUnixNano: string;
  endTimeUnixNano: string;
  attributes: Attribute[];
  status: { code?: number };
}
interface WirePage {
  resourceSpans: { resource: { attributes: Attribute[] }; scopeSpans: { spans: WireSpan[] }[] }[];
}

export interface ReceivedSpan {
  traceId: string;
  spanId: string;
  /** Null for a root span. */
  parent: string | null;
  name: string;
  /** Milliseconds since 1970. */
  startedAt: number;
  endedAt: number;
  failed: boolean;
  attributes: Record<string, string | number | boolean>;
  service: string;
}

export class OtlpReceiver {
  readonly spans: ReceivedSpan[] = [];
  readonly headers: IncomingMessage['headers'][] = [];
  /** All request bodies, as they were received. */
  bodies = '';
  requests = 0;
  /** While it is set, no request is answered. */
  hangs = false;

  private constructor(private readonly server: Server) {}

  static async start(): Promise<OtlpReceiver> {
    const server = createServer();
    const receiver = new OtlpReceiver(server);
    server.on('request', (request, response) => {
      receiver.requests += 1;
      if (receiver.hangs) return;
      let body = '';
      request.setEncoding('utf8').on('data', (piece: string) => (body += piece));
      request.on('end', () => {
        const known = request.method === 'POST' && request.url === '/v1/traces';
        if (known) receiver.take(body, request.headers);
        response.writeHead(known ? 200 : 404, { 'content-type': 'application/json' }).end('{}');
      });
    });
    server.listen(0, '127.0.0.1');
    await new Promise((resolve) => server.once('listening', resolve));
    return receiver;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }

  private take(body: string, headers: IncomingMessage['headers']): void {
    this.bodies += body;
    this.headers.push(headers);
    for (const { resource, scopeSpans } of (JSON.parse(body) as WirePage).resourceSpans)
      for (const { spans } of scopeSpans)
        for (const span of spans) this.spans.push(received(span, plain(resource.attributes)['service.name']));
  }
}

function received(span: WireSpan, service: unknown): ReceivedSpan {
  const { traceId, spanId, parentSpanId, name, status } = span;
  return {
    ...{ traceId, spanId, name },
    parent: parentSpanId ?? null,
    startedAt: Number(span.startTimeUnixNano) / 1e6,
    endedAt: Number(span.endTimeUnixNano) / 1e6,
    failed: status.code === 2,
    attributes: plain(span.attributes),
    service: String(service),
  };
}

function plain(attributes: readonly Attribute[]): ReceivedSpan['attributes'] {
  return Object.fromEntries(
    attributes.map(({ key, value: { stringValue, intValue, doubleValue, boolValue } }) => [
      key,
      stringValue ?? doubleValue ?? boolValue ?? Number(intValue),
    ]),
  );
}
