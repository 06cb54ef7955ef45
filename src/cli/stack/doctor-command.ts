// `longhaul doctor`: probes everything that a run needs. Exits with 1 when something is wrong.
import { type Command, Option } from 'commander';
import { probeSlack } from '../../integrations/slack/slack-probe.js';
import { readSpecFile } from '../../spec/spec-input.js';
import {
  type CheckResult,
  check,
  checksTable,
  checkStore,
  probeEnvironments,
  probeNodes,
  probeTemporal,
  probeWorkers,
} from './doctor-checks.js';
import { probeEngine } from './engine-check.js';
import { tokenOfStack } from '../../stack/stack.js';
import { soundSpec, specChecks } from './spec-checks.js';
import { tinkerChecks, type TinkerFlags } from './tinker-checks.js';
import {
  defaultStackFolder,
  defaultStore,
  inFolder,
  storeFolderProblem,
  storeOfFolder,
  storeOption,
  withOutput,
} from '../output.js';
import {
  refuseForeignServer,
  sourceText,
  type TemporalFlags,
  temporalConfig,
  type TemporalPlace,
  withTemporalFlags,
} from '../temporal-access.js';

interface DoctorFlags extends TemporalFlags, TinkerFlags {
  store: string;
  spec?: string;
  slackChannel?: string;
  json?: boolean;
}

export function register(program: Command): void {
  withTemporalFlags(
    program
      .command('doctor')
      .description(
        'probe Temporal, workers, nodes, store, engine, environments, Slack and a Tinker server, and say how to fix what is wrong',
      ),
    'reads',
  )
    .addOption(storeOption())
    .option('--spec <spec>', 'also check this run spec and the environments that it names')
    .option(
      '--slack-channel <channel>',
      'also check that the bot of SLACK_BOT_TOKEN can post in this channel',
    )
    .addOption(
      new Option(
        '--tinker <url>',
        'also probe this Tinker server, with the rank of the spec or 8; it is sent a few thousand tokens, and the key in TINKER_API_KEY',
      ).env('LONGHAUL_TINKER'),
    )
    .addOption(
      new Option('--served-model <name>', 'its model; default: the spec’s, or its only one').env(
        'LONGHAUL_SERVED_MODEL',
      ),
    )
    .option('--json', 'print one JSON array of {check, ok, detail}')
    .action(
      withOutput(async (flags: DoctorFlags, command: Command) => {
        const results = await diagnose(flags, command.getOptionValueSource('store') === 'default');
        console.log(flags.json ? JSON.stringify(results) : checksTable(results));
        if (results.some(({ ok }) => !ok)) process.exitCode = 1;
      }),
    );
}

async function diagnose(flags: DoctorFlags, storeIsDefault: boolean): Promise<CheckResult[]> {
  const place = placeOf(flags);
  const stack = place instanceof Error ? null : place.stack;
  const store = storeIsDefault
    ? (stack?.store ?? storeOfFolder(flags.folder ?? defaultStackFolder))
    : flags.store;
  const start = `longhaul up${inFolder(flags)}`;
  const sound = flags.spec === undefined ? null : await soundSpec(flags.spec);
  const spec = sound === null || sound instanceof Error ? sound : sound.spec;
  const temporal = check('temporal', async () => {
    if (place instanceof Error) throw place;
    const { config, source, stack, folder, note } = place;
    const server = await probeTemporal(config, async (client) => {
      if (stack) await refuseForeignServer(client, stack, folder);
    });
    return `${server} (${sourceText(source)})${note === null ? '' : `; ${note}`}`;
  });
  const workers = temporal.then(({ ok }) =>
    check('workers', () =>
      ok && !(place instanceof Error)
        ? probeWorkers(place.config, start)
        : Promise.reject(new Error('unknown, because Temporal does not answer')),
    ),
  );
  // An orchestrator runs the pool, which answers for the nodes.
  const nodes = workers.then(({ ok }) =>
    check('nodes', () =>
      ok && !(place instanceof Error)
        ? probeNodes(place.config, start)
        : Promise.reject(new Error('unknown, because no orchestrator answers')),
    ),
  );
  const parts = [
    check('node', () => Promise.resolve(`${process.versions.node} on ${process.platform}-${process.arch}`)),
    check('engine', probeEngine),
    check('store', async () =>
      // Do not create an empty store for a person who is in the wrong folder.
      storeIsDefault && stack === null && (await storeFolderProblem(store)) === 'ENOENT'
        ? `none in this folder yet; the first \`${start}\` or quickstart creates ${flags.folder === undefined ? defaultStore : store}`
        : checkStore(store),
    ),
    temporal,
    workers,
    nodes,
  ];
  const server = stack?.environments ?? null;
  if (server !== null) parts.push(check('environments', () => probeEnvironments(server)));
  if (sound !== null)
    parts.push(
      ...specChecks(sound, {
        path: flags.spec as string,
        store,
        stackServer: server,
        ...(stack && !(place instanceof Error) ? { stackToken: tokenOfStack(place.folder) } : {}),
        start,
      }),
    );
  const [results, slack, tinker] = await Promise.all([
    Promise.all(parts),
    slackChecks(flags),
    tinkerChecks(flags, spec),
  ]);
  return [...results, ...tinker, ...slack];
}

/** Checks Slack only if a token is set or a channel is named. */
async function slackChecks({ slackChannel, spec }: DoctorFlags): Promise<CheckResult[]> {
  const token = process.env.SLACK_BOT_TOKEN;
  const stated = spec === undefined ? null : await readSpecFile(spec).catch(() => null);
  const channel = slackChannel ?? stated?.slack?.channel ?? null;
  if (!token && channel === null) return [];
  if (!token) {
    const detail = `SLACK_BOT_TOKEN is not set here, so nothing is posted in ${channel}: export the bot’s token where the follower is started`;
    return [{ check: 'slack token', ok: false, detail }];
  }
  const apiUrl = process.env.SLACK_API_URL;
  return probeSlack({
    ...{ token: () => token, tokenName: 'SLACK_BOT_TOKEN', channel },
    ...(apiUrl ? { apiUrl } : {}),
  });
}

/** An error if the named folder has no running stack. The other probes run all the same. */
function placeOf(flags: DoctorFlags): TemporalPlace | Error {
  try {
    return temporalConfig(flags);
  } catch (error) {
    if (flags.folder !== undefined && error instanceof Error) return error;
    throw error;
  }
}
