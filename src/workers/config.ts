// What a worker process is told, by flags or the environment; both say the same, flags win.
import { hostname } from 'node:os';
import { resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { loadClientConnectConfig } from '@temporalio/envconfig';
import type { NativeConnectionOptions } from '@temporalio/worker';

export interface TemporalConfig {
  /** `host:port`. */
  address: string;
  namespace: string;
  /** TLS, API key and headers of the profile; the same for clients and workers. */
  options: NativeConnectionOptions;
}

export interface WorkerConfig {
  temporal: TemporalConfig;
  /** `dir:/path` or `s3://bucket/prefix`. */
  store: string;
  /** Stable id of this node; part of its queues' names. */
  node: string;
  /** Of this process alone: lock, open activities, states and batches. */
  folder: string;
  engine: string | null;
  /** Server of environments that name no `url` in the spec. */
  environments: string | null;
  gradingTokenFile: string | null;
}

const options = {
  store: { type: 'string' },
  node: { type: 'string' },
  folder: { type: 'string' },
  engine: { type: 'string' },
  environments: { type: 'string' },
  'grading-token-file': { type: 'string' },
  'temporal-address': { type: 'string' },
  namespace: { type: 'string' },
} as const;

/** Throws with what is missing and how to give it. */
export function readWorkerConfig(
  args: readonly string[],
  env: NodeJS.ProcessEnv = process.env,
): WorkerConfig {
  const { values } = parseArgs({ args: [...args], options, strict: true });
  const read = (flag: keyof typeof options, variable: string): string | null =>
    values[flag] ?? env[variable] ?? null;
  const needed = (flag: keyof typeof options, variable: string, example: string): string => {
    const value = read(flag, variable);
    if (value) return value;
    throw new Error(`this worker needs --${flag} or ${variable}, for example ${example}`);
  };
  const node = read('node', 'LONGHAUL_NODE') ?? hostname().toLowerCase();
  if (!/^[A-Za-z0-9._-]{1,100}$/.test(node)) {
    throw new Error(
      `a node's id has 1 to 100 of the characters A-Z a-z 0-9 . _ -, not ${JSON.stringify(node)}`,
    );
  }
  return {
    temporal: readTemporalConfig({
      ...(values['temporal-address'] ? { address: values['temporal-address'] } : {}),
      ...(values.namespace ? { namespace: values.namespace } : {}),
    }),
    store: needed('store', 'LONGHAUL_STORE', 'dir:/srv/longhaul'),
    node,
    folder: resolve(needed('folder', 'LONGHAUL_FOLDER', '/var/lib/longhaul')),
    engine: read('engine', 'LONGHAUL_ENGINE'),
    environments: read('environments', 'LONGHAUL_ENVIRONMENTS'),
    gradingTokenFile: read('grading-token-file', 'LONGHAUL_GRADING_TOKEN_FILE'),
  };
}

/** The profile that the `temporal` CLI uses too (`temporal.toml`, TEMPORAL_*), unless told otherwise. */
export function readTemporalConfig(given: { address?: string; namespace?: string } = {}): TemporalConfig {
  const { connectionOptions, namespace } = loadClientConnectConfig();
  const address = given.address ?? connectionOptions.address ?? 'localhost:7233';
  return {
    address,
    namespace: given.namespace ?? namespace ?? 'default',
    options: { ...connectionOptions, address },
  };
}
