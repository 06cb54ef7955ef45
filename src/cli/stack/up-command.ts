// `longhaul up`: the embedded stack in the foreground, until Ctrl-C.
import { type Command, InvalidArgumentError } from 'commander';
import { parseMetricsAddress } from '../../integrations/tracking/prometheus-server.js';
import { defaultStackFolder, inFolder, wholeNumber, withOutput } from '../output.js';
import { type StackFlags, StackStopped, whenEnding, withStack } from './stack-session.js';
import { usualEnvironmentPort } from '../../stack/stack.js';
import { findTemporalBinary } from '../../stack/temporal-binary.js';

export function register(program: Command): void {
  program
    .command('up')
    .description('run Temporal and the workers on this machine, until Ctrl-C')
    .option('--folder <folder>', 'folder for all data', defaultStackFolder)
    .option(
      '--temporal-port <port>',
      'port of the Temporal server (default: 7233 or a free one)',
      wholeNumber(1, 65_535),
    )
    .option(
      '--ui-port <port>',
      'port of the Temporal UI (default: 8233 or a free one)',
      wholeNumber(1, 65_535),
    )
    .option(
      '--store <address>',
      'dir:/path or s3://bucket/prefix (default: a directory in the folder)',
      storeAddress,
    )
    .option('--nodes <n>', 'number of node workers, each with its own engine', wholeNumber(1), 1)
    .option('--places <n>', 'how many runs a node may serve at once', wholeNumber(1), 1)
    .option(
      '--metrics-address <host:port>',
      'address at which Prometheus can read the metrics of all runs (default: none)',
      metricsAddress,
    )
    .option(
      '--environments <command>',
      `also run this environment server, and start it again if it ends; it gets its port in LONGHAUL_ENVIRONMENT_PORT (${usualEnvironmentPort} or a free one)`,
      environmentCommand,
    )
    .option('--json', 'print the addresses as one JSON object')
    .action(
      withOutput(async (flags: StackFlags & { json?: boolean }) => {
        const begun = performance.now();
        try {
          await withStack(flags, say, async ({ addresses }, signal) => {
            const nodes = flags.nodes ?? 1;
            const seconds = ((performance.now() - begun) / 1000).toFixed(1);
            console.log(
              flags.json
                ? JSON.stringify(addresses)
                : [
                    `The stack is up (${seconds} s). Ctrl-C stops it; its runs continue when it is started again.`,
                    `  Temporal      ${addresses.temporal}`,
                    `  Temporal UI   ${addresses.ui}`,
                    `  Temporal CLI  TEMPORAL_ADDRESS=${addresses.temporal} ${findTemporalBinary()}`,
                    ...environmentLines(addresses.environments),
                    `  store         ${addresses.store}`,
                    `  nodes         ${nodes} (${String(flags.places ?? 1)} ${flags.places === 1 ? 'run' : 'runs'} at once on each)`,
                    `Start a run in another terminal: longhaul train SPEC${inFolder(flags)}`,
                  ].join('\n'),
            );
            const note = bucketNote(process.env, addresses.store);
            if (note !== null) console.error(note);
            await whenEnding(signal);
          });
        } catch (error) {
          if (!(error instanceof StackStopped) || error.signal === null) throw error;
        }
      }),
    );
}

/** With the settings that presets need if their usual port was taken at the stack's first start. */
export function environmentLines(url: string | null): string[] {
  if (url === null) return [];
  const usual = `http://127.0.0.1:${usualEnvironmentPort}`;
  if (url === usual) return [`  environments  ${url}`];
  return [
    `  environments  ${url}; presets name ${usual}:`,
    `                set data.tasks='openenv+${url}/…' environments.0.url=${url} environments.1.url=…`,
  ];
}

function metricsAddress(text: string): string {
  try {
    parseMetricsAddress(text, '--metrics-address');
    return text;
  } catch (error) {
    throw new InvalidArgumentError((error as Error).message);
  }
}

function environmentCommand(text: string): string {
  if (!/^https?:\/\//.test(text.trim())) return text;
  throw new InvalidArgumentError(
    'It takes a command, not an address: name a running server by environments[].url in the spec.',
  );
}

function storeAddress(text: string): string {
  if (/^(dir:.|s3:\/\/.|[^:]+$)/.test(text)) return text;
  throw new InvalidArgumentError('It takes dir:/path or s3://bucket/prefix.');
}

function say(message: string): void {
  process.stderr.write(`${new Date().toISOString().slice(11, 19)} ${message}\n`);
}

const variables = ['S3_CHECKPOINT_BUCKET', 'S3_TRAJECTORY_BUCKET'] as const;

/** What to do for each bucket that a variable names and the store is not in; null if there is none. */
export function bucketNote(
  environment: Readonly<Record<string, string | undefined>>,
  store: string,
): string | null {
  const bucket = /^s3:\/\/([^/?]+)/.exec(store)?.[1];
  const others = variables.filter((name) => {
    const named = environment[name]?.trim();
    return named !== undefined && named !== '' && named !== bucket;
  });
  if (others.length === 0) return null;
  return (
    `${others.join(' and ')} ${others.length === 1 ? 'is' : 'are'} not read: one store has checkpoints/ and trajectories/, here ${store}. ` +
    'To keep both in a bucket: --store s3://BUCKET'
  );
}
