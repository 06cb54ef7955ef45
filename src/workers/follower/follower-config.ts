// The follower's settings. Each can be a flag or an environment variable, and the flag wins; tokens and keys come from the environment
// only.
import { resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { type MetricsAddress, parseMetricsAddress } from '../../integrations/tracking/prometheus-server.js';
import { secretInUrl } from '../../base/secrets.js';
import { type TemporalConfig, temporalOf } from '../process/config.js';

export interface FollowerConfig {
  temporal: TemporalConfig;
  /** `dir:/path` or `s3://bucket/prefix`. */
  store: string;
  /** Folder that only this process uses: lock, trackers' files, cursors. */
  folder: string;
  /** Where metrics are served; null: nowhere. */
  metrics: MetricsAddress | null;
  /** Address of Temporal's web UI, for links; null: no links. */
  temporalUi: string | null;
  wandbPython: string;
  /** Address of a Slack other than slack.com, such as GovSlack; null: slack.com. */
  slackUrl: string | null;
}

/** File in the follower's folder with its pid, written when it has looked for runs. */
export const servingFile = 'serving.json';

const options = {
  store: { type: 'string' },
  folder: { type: 'string' },
  'metrics-address': { type: 'string' },
  'temporal-ui': { type: 'string' },
  'wandb-python': { type: 'string' },
  'temporal-address': { type: 'string' },
  // An embedded stack sets this: the user's profile may be for another server.
  'no-temporal-profile': { type: 'boolean' },
  namespace: { type: 'string' },
} as const;

/** Throws an error that says which setting is missing and how to give it. */
export function readFollowerConfig(
  args: readonly string[],
  env: NodeJS.ProcessEnv = process.env,
): FollowerConfig {
  const { values } = parseArgs({ args: [...args], options, strict: true });
  type Flag = Exclude<keyof typeof options, 'no-temporal-profile'>;
  const read = (flag: Flag, variable: string): string | null => values[flag] || env[variable] || null;
  const needed = (flag: Flag, variable: string, example: string): string => {
    const value = read(flag, variable);
    if (value) return value;
    throw new Error(`the follower needs --${flag} or ${variable}, for example ${example}`);
  };
  const metrics = read('metrics-address', 'LONGHAUL_METRICS_ADDRESS');
  return {
    temporal: temporalOf(values, env),
    store: needed('store', 'LONGHAUL_STORE', 'dir:/srv/longhaul'),
    folder: resolve(needed('folder', 'LONGHAUL_FOLDER', '/var/lib/longhaul')),
    metrics: metrics === null ? null : parseMetricsAddress(metrics, '--metrics-address'),
    temporalUi: shownUrl(read('temporal-ui', 'LONGHAUL_TEMPORAL_UI')),
    wandbPython: read('wandb-python', 'LONGHAUL_WANDB_PYTHON') ?? 'python3',
    slackUrl: env.SLACK_API_URL || null,
  };
}

/** Checks the address for links, which everybody in a Slack channel sees. */
function shownUrl(text: string | null): string | null {
  if (text === null) return null;
  if (/^https?:\/\//.test(text) && secretInUrl(text) === null) return text.replace(/\/+$/, '');
  throw new Error(
    '--temporal-ui or LONGHAUL_TEMPORAL_UI must be http://host:port or https://host without user, password and query: ' +
      'it is shown in Slack',
  );
}
