// Connects to a Temporal server. Waits for a server that is starting; if no server answers, the error says what to do.
import { setTimeout as delay } from 'node:timers/promises';
import { InterceptingCall, type Interceptor, Metadata, status } from '@grpc/grpc-js';
import { Client, Connection, type ConnectionOptions } from '@temporalio/client';
import { defaultGrpcRetryOptions, makeGrpcRetryInterceptor } from '@temporalio/client';
import type { TemporalConfig } from '../process/config.js';
import { handshakeRefusal, isSecure, refusalOf, TemporalRefused } from './temporal-refusal.js';

const longestAttemptMs = 3_000;

interface TemporalClient {
  client: Client;
  close(): Promise<void>;
}

export class TemporalUnreachable extends Error {
  constructor(address: string, seconds: number, cause: unknown) {
    super(
      `no Temporal server answers at ${address} (tried for ${seconds} s). Start one with \`longhaul up\`, ` +
        'or name another one with TEMPORAL_ADDRESS or a profile in temporal.toml',
      { cause },
    );
    this.name = 'TemporalUnreachable';
  }
}

/** Throws `TemporalRefused` if a person must fix something, and `TemporalUnreachable` after the deadline. */
export async function connectClient(
  temporal: TemporalConfig,
  deadlineMs = 5_000,
  { readOnly = false }: { readOnly?: boolean } = {},
): Promise<TemporalClient> {
  const connection = await untilDeadline(temporal, deadlineMs, async () => {
    const connectTimeout = Math.min(deadlineMs, longestAttemptMs);
    const opened = openConnection({ ...temporal.options, connectTimeout }, readOnly ? [refuseWrites] : []);
    try {
      await opened.ensureConnected();
    } catch (error) {
      await opened.close();
      throw error;
    }
    return opened;
  });
  return {
    client: new Client({ connection, namespace: temporal.namespace }),
    close: () => connection.close(),
  };
}

/**
 * A client's connection, which connects at its first call. It may be closed while a call waits for its retry. `ensureConnected()` rejects
 * if the server does not answer.
 */
export function openConnection(
  options: ConnectionOptions,
  interceptors: readonly Interceptor[] = [],
): Connection {
  const retry = makeGrpcRetryInterceptor(defaultGrpcRetryOptions());
  return Connection.lazy({ ...options, interceptors: [...interceptors, retry, endCallsAfterClose] });
}

/** Names of Temporal calls that change nothing. */
const reads = /^(Get|List|Describe|Count|Query)/;

/** Refuses writes of a read-only command: it may use a server that the user did not name, so it must not write by mistake. */
const refuseWrites: Interceptor = (options, nextCall) => {
  const call = options.method_definition.path.split('/').at(-1) ?? '';
  if (reads.test(call)) return new InterceptingCall(nextCall(options));
  return new InterceptingCall(
    endedCall(status.FAILED_PRECONDITION, `${call} changes the server, and this command only reads`),
  );
};

/**
 * The SDK retries a failed call from a timer. If the channel was closed meanwhile, the call throws in the timer, where no caller can catch
 * it, and the process would end. This interceptor makes such a call end as cancelled.
 */
const endCallsAfterClose: Interceptor = (options, nextCall) => {
  try {
    return new InterceptingCall(nextCall(options));
  } catch (error) {
    return new InterceptingCall(endedCall(status.CANCELLED, String(error)));
  }
};

function endedCall(code: status, details: string): ConstructorParameters<typeof InterceptingCall>[0] {
  const outcome = { code, details, metadata: new Metadata() };
  return {
    start: (_metadata, listener) => {
      listener?.onReceiveStatus?.(outcome);
    },
    cancelWithStatus: () => undefined,
    getPeer: () => 'none',
    sendMessageWithContext: () => undefined,
    sendMessage: () => undefined,
    startRead: () => undefined,
    halfClose: () => undefined,
    getAuthContext: () => null,
  };
}

export async function untilDeadline<T>(
  temporal: TemporalConfig,
  deadlineMs: number,
  attempt: () => Promise<T>,
): Promise<T> {
  const deadline = Date.now() + deadlineMs;
  for (;;) {
    try {
      // Ask first: a client with a refused certificate would retry until its own deadline, without a reason.
      const refused = isSecure(temporal) ? await handshakeRefusal(temporal) : null;
      if (refused) throw refused;
      return await attempt();
    } catch (error) {
      if (error instanceof TemporalRefused) throw error;
      const refused = refusalOf(error, temporal) ?? (await handshakeRefusal(temporal));
      if (refused) throw refused;
      if (Date.now() >= deadline)
        throw new TemporalUnreachable(temporal.address, Math.round(deadlineMs / 1000), error);
      await delay(200);
    }
  }
}
