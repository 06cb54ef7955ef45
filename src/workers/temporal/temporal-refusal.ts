// Finds out why a running Temporal server refuses us: certificates, keys or rights. gRPC clients only say "unavailable" and try for ever,
// so we make our own handshake.
import { connect, type ConnectionOptions, type TLSSocket } from 'node:tls';
import { setTimeout as delay } from 'node:timers/promises';
import { status } from '@grpc/grpc-js';
import { withoutSecrets } from '../../base/secrets.js';
import type { TemporalConfig } from '../process/config.js';

/** The server refuses us. A retry does not help: a person must fix the profile. */
export class TemporalRefused extends Error {
  constructor(address: string, problem: string, fix: string) {
    super(`the Temporal server at ${address} cannot be used: ${problem}; ${fix}`);
    this.name = 'TemporalRefused';
  }
}

const handshakeMs = 1_500;
/** First bytes of an HTTP/2 client: the connection preface and an empty SETTINGS frame. */
const preface = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0', 'latin1');

const fixes = {
  authority:
    'name the certificate authority that signed it, with TEMPORAL_TLS_SERVER_CA_CERT_PATH or tls.server_ca_cert_path of the profile',
  name: 'correct the address, or give the expected name with TEMPORAL_TLS_SERVER_NAME or tls.server_name of the profile',
  client:
    'give one that it accepts with TEMPORAL_TLS_CLIENT_CERT_PATH and TEMPORAL_TLS_CLIENT_KEY_PATH, or with tls.client_cert_path ' +
    'and tls.client_key_path of the profile',
  noTls: 'remove api_key and tls from the profile, set TEMPORAL_TLS=false, or correct the address',
  tls: 'set TEMPORAL_TLS=true, or add the table [profile.NAME.tls] to temporal.toml',
  key: 'give one that it accepts with TEMPORAL_API_KEY or api_key of the profile',
  rights: 'correct the namespace, or use a key or certificate that may use it',
};

/** The refusal, if an error of either client says that the server refused our key or rights; null for other errors. */
export function refusalOf(error: unknown, temporal: TemporalConfig): TemporalRefused | null {
  const { code, text } = answerIn(error);
  if (code === undefined) return null;
  const detail = withoutSecrets(text, secretsOf(temporal)).replace(/\s+/g, ' ').slice(0, 200);
  if (code === status.PERMISSION_DENIED) {
    const problem = `it denies access to its namespace ${temporal.namespace} (${detail})`;
    return new TemporalRefused(temporal.address, problem, fixes.rights);
  }
  const key = temporal.options.apiKey === undefined ? 'requires an API key' : 'does not accept the API key';
  return new TemporalRefused(temporal.address, `it ${key} (${detail})`, fixes.key);
}

/** Whether the connection uses TLS; an API key alone turns it on. */
export function isSecure({ options }: TemporalConfig): boolean {
  return Boolean(options.tls ?? options.apiKey !== undefined);
}

/** Our secrets, which a server's answer may repeat. */
function secretsOf({ options }: TemporalConfig): string[] {
  const { apiKey, metadata = {} } = options;
  return [...(typeof apiKey === 'string' ? [apiKey] : []), ...Object.values(metadata).map(String)];
}

/** The gRPC code of an error. The TypeScript client has it in the error or a cause; the native client only in its message. */
function answerIn(error: unknown): { code?: status; text: string } {
  for (let inner = error; inner instanceof Error; inner = inner.cause) {
    const { code, details, message } = inner as Error & { code?: unknown; details?: string };
    if (code === status.UNAUTHENTICATED || code === status.PERMISSION_DENIED)
      return { code, text: details ?? message };
    const text = /message: "(.*?)"/s.exec(message)?.[1] ?? message;
    if (message.includes('does not have valid authentication')) return { code: status.UNAUTHENTICATED, text };
    if (message.includes('does not have permission')) return { code: status.PERMISSION_DENIED, text };
  }
  return { text: '' };
}

/** The problem that a TLS handshake with the server shows; null if there is no problem or no answer. */
export async function handshakeRefusal(temporal: TemporalConfig): Promise<TemporalRefused | null> {
  const { tls } = temporal.options;
  const secure = isSecure(temporal);
  const given = typeof tls === 'object' ? tls : null;
  // If we use no TLS, only check whether the server requires it.
  const trust: ConnectionOptions = secure
    ? {
        ...(given?.serverRootCACertificate ? { ca: Buffer.from(given.serverRootCACertificate) } : {}),
        ...(given?.clientCertPair
          ? { cert: Buffer.from(given.clientCertPair.crt), key: Buffer.from(given.clientCertPair.key) }
          : {}),
        ...(given?.serverNameOverride ? { servername: given.serverNameOverride } : {}),
      }
    : { rejectUnauthorized: false };
  let ending = await handshake(temporal.address, trust);
  if (ending.kind === 'closed') {
    // A stopping server also closes connections. The server refuses us only if it also closes a second connection.
    await delay(200);
    ending = await handshake(temporal.address, trust);
  }
  const found = problemOf(ending, { tls: secure, certificate: given?.clientCertPair !== undefined });
  return found && new TemporalRefused(temporal.address, found.problem, found.fix);
}

/** How a handshake ends. `closed`: the server closed the connection after the handshake and before its first bytes. */
type Ending = { kind: 'welcome' | 'closed' | 'silent' } | { kind: 'failed'; secure: boolean; error: Error };

function handshake(address: string, trust: ConnectionOptions): Promise<Ending> {
  const [, host = '', port = '7233'] = /^\[?(.*?)\]?(?::(\d+))?$/.exec(address) ?? [];
  return new Promise((resolve) => {
    let secure = false;
    let socket: TLSSocket;
    try {
      socket = connect({ host, port: Number(port), ALPNProtocols: ['h2'], ...trust });
    } catch (error) {
      // Our key does not belong to our certificate.
      resolve({ kind: 'failed', secure, error: error as Error });
      return;
    }
    const end = (ending: Ending): void => {
      clearTimeout(timer);
      resolve(ending);
      socket.destroy();
    };
    const timer = setTimeout(() => end({ kind: 'silent' }), handshakeMs);
    socket.on('secureConnect', () => {
      secure = true;
      socket.write(preface);
    });
    // In TLS 1.3 the server checks our certificate after our side has finished the handshake; its first bytes show the result.
    socket.once('data', () => end({ kind: 'welcome' }));
    socket.on('error', (error: Error) => end({ kind: 'failed', secure, error }));
    socket.once('close', () => end({ kind: secure ? 'closed' : 'silent' }));
  });
}

function problemOf(
  ending: Ending,
  ours: { tls: boolean; certificate: boolean },
): { problem: string; fix: string } | null {
  const failure: Partial<NodeJS.ErrnoException> = ending.kind === 'failed' ? ending.error : {};
  const { code = '', message = '' } = failure;
  const reached = ending.kind === 'welcome' || ending.kind === 'closed';
  const asked = /ALERT|HANDSHAKE_FAILURE/.test(code);
  if (!ours.tls)
    return reached || asked ? { problem: 'it uses TLS, but this connection does not', fix: fixes.tls } : null;
  if (
    ending.kind === 'closed' ||
    (ending.kind === 'failed' && ending.secure && code === 'ECONNRESET') ||
    asked
  ) {
    const what = ours.certificate
      ? 'does not accept the client certificate'
      : 'requires a client certificate';
    return { problem: `it ${what}`, fix: fixes.client };
  }
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID')
    return { problem: 'its certificate is for another host name', fix: fixes.name };
  if (/^ERR_SSL_(WRONG_VERSION_NUMBER|PACKET_LENGTH_TOO_LONG|.*RECORD)/.test(code))
    return { problem: 'it does not use TLS, but this connection does', fix: fixes.noTls };
  if (/KEY_VALUES_MISMATCH|PEM|ASN1|DECODER/.test(code))
    return { problem: `the client certificate and key cannot be used (${message})`, fix: fixes.client };
  if (/CERT|ISSUER|SIGNATURE|CRL/.test(code))
    return { problem: `its certificate is not trusted (${message})`, fix: fixes.authority };
  return null;
}
