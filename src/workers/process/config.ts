// The settings of a worker process. Each can be a flag or an environment variable, and the flag wins.
import { isIP } from 'node:net';
import { hostname } from 'node:os';
import { resolve } from 'node:path';
import { parseArgs } from 'node:util';
import type { NativeConnectionOptions } from '@temporalio/worker';
import { keepSecret } from '../../base/known-secrets.js';
import { parseMetricsAddress } from '../../integrations/tracking/prometheus-server.js';
import { secretInUrl } from '../../base/secrets.js';
import { readProfile } from './temporal-profile.js';

export interface TemporalConfig {
  /** `host:port`. */
  address: string;
  namespace: string;
  /** TLS, API key and headers of the profile, for clients and workers. */
  options: NativeConnectionOptions;
}

export interface WorkerConfig {
  temporal: TemporalConfig;
  /** `dir:/path` or `s3://bucket/prefix`. */
  store: string;
  /** Stable id of this node; part of its queues' names. */
  node: string;
  /** Folder that only this process uses: lock, open activities, states and batches. */
  folder: string;
  engine: string | null;
  /** A Tinker server that this node uses instead of its own engine. */
  tinker: TinkerConfig | null;
  /** Server for environments that have no `url` in the spec. */
  environments: string | null;
  gradingTokenFile: string | null;
  /** Number of runs that may hold this node at once. */
  places: number;
  /** Time from SIGTERM or SIGINT to the end of this process. */
  graceMs: number;
  /** `host:port` where the SDK's metrics are served to Prometheus; null if they are not served. */
  metricsAddress: string | null;
  /** The worker deployment that an orchestrator belongs to; null if its workflows are not versioned. */
  deployment: Deployment | null;
}

export interface TinkerConfig {
  url: string;
  /** The operator's name for the server. Numerics and states use it, as the address may change. */
  service: string;
  /** Null if the server has only one model. */
  model: string | null;
}

export interface Deployment {
  name: string;
  /** Equal for all workers of one build, different for other builds. */
  buildId: string;
}

/** Less than the 30 s of Kubernetes and than the shortest notice of a spot machine. */
const defaultGraceSeconds = '25';

const defaultAddress = 'localhost:7233';

const options = {
  store: { type: 'string' },
  node: { type: 'string' },
  folder: { type: 'string' },
  engine: { type: 'string' },
  tinker: { type: 'string' },
  'tinker-service': { type: 'string' },
  'served-model': { type: 'string' },
  environments: { type: 'string' },
  'grading-token-file': { type: 'string' },
  places: { type: 'string' },
  grace: { type: 'string' },
  'metrics-address': { type: 'string' },
  deployment: { type: 'string' },
  'build-id': { type: 'string' },
  'temporal-address': { type: 'string' },
  // An embedded stack sets this: the user's profile may be for another server.
  'no-temporal-profile': { type: 'boolean' },
  namespace: { type: 'string' },
} as const;

/** Throws an error that says which setting is missing and how to give it. */
export function readWorkerConfig(
  args: readonly string[],
  env: NodeJS.ProcessEnv = process.env,
): WorkerConfig {
  const { values } = parseArgs({ args: [...args], options, strict: true });
  type Flag = Exclude<keyof typeof options, 'no-temporal-profile'>;
  const read = (flag: Flag, variable: string): string | null => values[flag] ?? env[variable] ?? null;
  const needed = (flag: Flag, variable: string, example: string): string => {
    const value = read(flag, variable);
    if (value) return value;
    throw new Error(`this worker needs --${flag} or ${variable}, for example ${example}`);
  };
  const number = (
    flag: Flag,
    variable: string,
    otherwise: string,
    [least, most]: [number, number],
  ): number => {
    const text = read(flag, variable) ?? otherwise;
    const value = Number(text);
    if (/^\d+$/.test(text) && value >= least && value <= most) return value;
    throw new Error(
      `--${flag} or ${variable} takes a whole number from ${least} to ${most}, not ${JSON.stringify(text.slice(0, 40))}`,
    );
  };
  const node = read('node', 'LONGHAUL_NODE') ?? hostname().toLowerCase();
  if (!/^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$/.test(node)) {
    throw new Error(
      `a node's id has 1 to 100 of the characters A-Z a-z 0-9 . _ - and does not start with a dot; ` +
        `${JSON.stringify(node.slice(0, 120))} is not valid`,
    );
  }
  const tinker = tinkerOf(
    read('tinker', 'LONGHAUL_TINKER'),
    read('tinker-service', 'LONGHAUL_TINKER_SERVICE'),
    read('served-model', 'LONGHAUL_SERVED_MODEL'),
  );
  const places = number('places', 'LONGHAUL_PLACES', '1', [1, 100]);
  if (tinker && places > 1)
    throw new Error(
      'a node of a Tinker server has one place, since a run has one model there: leave out --places or LONGHAUL_PLACES, and start a ' +
        'node for each run that shall train at once',
    );
  return {
    temporal: temporalOf(values, env),
    store: needed('store', 'LONGHAUL_STORE', 'dir:/srv/longhaul'),
    node,
    folder: resolve(needed('folder', 'LONGHAUL_FOLDER', '/var/lib/longhaul')),
    engine: read('engine', 'LONGHAUL_ENGINE'),
    tinker,
    environments: withoutCredentials(
      read('environments', 'LONGHAUL_ENVIRONMENTS'),
      '--environments or LONGHAUL_ENVIRONMENTS',
      'the grading token with --grading-token-file',
    ),
    gradingTokenFile: read('grading-token-file', 'LONGHAUL_GRADING_TOKEN_FILE'),
    places,
    graceMs: number('grace', 'LONGHAUL_GRACE', defaultGraceSeconds, [1, 3_600]) * 1000,
    metricsAddress: metricsAddressOf(read('metrics-address', 'LONGHAUL_METRICS_ADDRESS')),
    deployment: deploymentOf(
      read('deployment', 'LONGHAUL_DEPLOYMENT'),
      read('build-id', 'LONGHAUL_BUILD_ID'),
    ),
  };
}

/** Checks the address. An empty text means no address, as for an unset variable of a Compose file. */
function metricsAddressOf(text: string | null): string | null {
  if (!text) return null;
  const flag = '--metrics-address or LONGHAUL_METRICS_ADDRESS';
  const { host, port } = parseMetricsAddress(text, flag);
  const address = host === 'localhost' ? '127.0.0.1' : host;
  if (isIP(address) !== 0 && port >= 1)
    return isIP(address) === 6 ? `[${address}]:${port}` : `${address}:${port}`;
  throw new Error(
    `${flag} takes an IP address of this machine and a port, for example 127.0.0.1:9464, or 0.0.0.0:9464 for all of ` +
      `its addresses, not ${JSON.stringify(text.slice(0, 60))}`,
  );
}

/** Throws if only one of name and build id is given: a worker without a version would take workflows of any build. */
function deploymentOf(name: string | null, buildId: string | null): Deployment | null {
  if (name === null && buildId === null) return null;
  const missing = name ? '--build-id or LONGHAUL_BUILD_ID' : '--deployment or LONGHAUL_DEPLOYMENT';
  if (!name || !buildId)
    throw new Error(
      `a versioned worker needs both a deployment and a build: ${missing} is missing, for example ` +
        '--deployment longhaul --build-id 2026-05-01',
    );
  for (const value of [name, buildId]) {
    if (!/^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$/.test(value) || (value === name && name.includes('.')))
      throw new Error(
        'a deployment and a build id have 1 to 100 of the characters A-Z a-z 0-9 _ -, and a build id may also have dots; ' +
          `${JSON.stringify(value.slice(0, 120))} is not valid`,
      );
  }
  return { name, buildId };
}

/** Throws if no server is named. There is no default: a server that listens on this machine may be another user's. */
export function temporalOf(
  values: {
    'temporal-address'?: string;
    'no-temporal-profile'?: boolean;
    namespace?: string;
  },
  env: NodeJS.ProcessEnv,
): TemporalConfig {
  const { 'temporal-address': address, 'no-temporal-profile': plain, namespace } = values;
  if (!address && (plain || namedTemporalAddress(env) === null))
    throw new Error(
      'no Temporal server is named: give --temporal-address HOST:PORT or TEMPORAL_ADDRESS, or name one in the profile of the temporal CLI',
    );
  if (plain && address) return plainTemporalConfig(address, namespace);
  return readTemporalConfig({ ...(address ? { address } : {}), ...(namespace ? { namespace } : {}) }, env);
}

/** The server that the environment or the `temporal` CLI's profile names; null if neither names one. */
export function namedTemporalAddress(env: NodeJS.ProcessEnv = process.env): string | null {
  return readProfile(env).connectionOptions.address ?? null;
}

/** Settings from the same profile as the `temporal` CLI (`temporal.toml`, TEMPORAL_*), unless overridden. */
export function readTemporalConfig(
  given: { address?: string; namespace?: string } = {},
  env: NodeJS.ProcessEnv = process.env,
): TemporalConfig {
  const { connectionOptions, namespace } = readProfile(env);
  const { apiKey, metadata = {} } = connectionOptions;
  for (const secret of [apiKey, ...Object.values(metadata)])
    if (typeof secret === 'string') keepSecret(secret);
  const address = checkAddress(given.address ?? connectionOptions.address ?? defaultAddress);
  return {
    address,
    namespace: given.namespace ?? namespace ?? 'default',
    options: { ...connectionOptions, address },
  };
}

/** Settings of an embedded stack's server: it needs no keys or certificates, and must not receive a profile's. */
export function plainTemporalConfig(given: string, namespace = 'default'): TemporalConfig {
  const address = checkAddress(given);
  return { address, namespace, options: { address } };
}

/** Refuses an address with a password, and does not repeat it in the error: addresses are logged and recorded. */
function checkAddress(address: string): string {
  if (/^[A-Za-z0-9._-]+(:[0-9]{1,5})?$|^\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?$/.test(address)) return address;
  throw new Error(
    'the address of the Temporal server must be host:port, without scheme, user or password; keys and certificates are ' +
      'given by TEMPORAL_API_KEY and TEMPORAL_TLS_*, or by a profile in temporal.toml',
  );
}

/** Refuses an address with a secret: messages and records contain a server's address. */
function withoutCredentials(url: string | null, flag: string, place: string): string | null {
  const secret = url === null ? null : secretInUrl(url);
  if (secret === null) return url;
  throw new Error(
    `${flag} is a URL with ${secret}, which would appear in logs and records: give http://host:port, and ${place}`,
  );
}

/** Null if there is no URL. Throws if the text is not a URL, or contains a secret. */
export function tinkerOf(
  url: string | null,
  service: string | null,
  model: string | null,
): TinkerConfig | null {
  if (!url) return null;
  const flag = '--tinker or LONGHAUL_TINKER';
  withoutCredentials(url, flag, 'the key in TINKER_API_KEY');
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol))
    throw new Error(`${flag} takes the URL of a Tinker server, for example http://127.0.0.1:8000`);
  const name = service ?? 'tinker';
  if (!/^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$/.test(name))
    throw new Error(
      `--tinker-service or LONGHAUL_TINKER_SERVICE names the server in at most 64 letters, digits, ".", "_" or "-"; ` +
        `${JSON.stringify(name.slice(0, 80))} is not such a name`,
    );
  return { url: url.replace(/\/+$/, ''), service: name, model };
}
