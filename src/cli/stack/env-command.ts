// `longhaul env serve` runs the built-in environment server in the foreground and passes its flags on; `longhaul env check` tries any server.
import { isObject } from '../../base/json.js';
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { type Command, InvalidArgumentError } from 'commander';
import { keepSecret } from '../../base/known-secrets.js';
import { serverOptionsOf } from '../../environments/openenv/server-options.js';

import { BadInput, withOutput } from '../output.js';
import { checksTable } from './doctor-checks.js';
import { type Trial, tryEnvironment } from './environment-trial.js';

const serverEntry = fileURLToPath(new URL('../../environments/server/main.js', import.meta.url));

export function register(program: Command): void {
  const environments = program
    .command('env')
    .description('environment servers: `env serve` runs the built-in one, `env check` tries any');
  environments
    .command('serve')
    .description('serve the built-in apps over OpenEnv (all flags: longhaul env serve -- --help)')
    .argument('[flags...]', 'flags of the server, after --')
    .allowUnknownOption()
    .helpOption(false)
    .action(withOutput(async (flags: string[]) => serve(flags)));
  environments
    .command('check')
    .description('play a few short episodes on an OpenEnv server, and say what a run will meet there')
    .argument('<url>', 'http://host:port')
    .option('--task-key <key>', 'a task that the server knows', 'check')
    .option('--env-key <key>', 'environment of the task', 'check')
    .option('--reset <json>', 'object that is sent with the reset, as `reset` of a task', jsonObject)
    .option('--headers-env <variable>', 'variable with HTTP headers, one `Name: value` a line')
    .option('--grading-token-env <variable>', 'variable with the grading token')
    .option('--json', 'print one JSON array of {check, ok, detail}')
    .action(
      withOutput(async (url: string, flags: CheckFlags) => {
        const results = await tryEnvironment(trialOf(url, flags));
        console.log(flags.json ? JSON.stringify(results) : checksTable(results));
        if (results.some(({ ok }) => !ok)) process.exitCode = 1;
      }),
    );
}

interface CheckFlags {
  taskKey: string;
  envKey: string;
  reset?: Record<string, unknown>;
  headersEnv?: string;
  gradingTokenEnv?: string;
  json?: boolean;
}

function trialOf(url: string, { taskKey, envKey, reset, headersEnv, gradingTokenEnv }: CheckFlags): Trial {
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol))
    throw new BadInput(`the server's address is of the form http://host:port, not ${JSON.stringify(url)}`);
  const environment = { env_key: envKey, url };
  const gradingToken = gradingTokenEnv === undefined ? undefined : process.env[gradingTokenEnv];
  if (gradingTokenEnv !== undefined && !gradingToken)
    throw new BadInput(
      `the variable ${gradingTokenEnv}, which holds the grading token, is not set here: export it`,
    );
  keepSecret(gradingToken);
  return {
    server: {
      ...serverOptionsOf({
        ...environment,
        ...(headersEnv === undefined ? {} : { headers_env: headersEnv }),
      }),
      url,
      ...(gradingToken === undefined ? {} : { gradingToken }),
    },
    task: {
      ...{
        task_key: taskKey,
        env_key: envKey,
        template: envKey,
        prompt: '-',
        env_variables: {},
        difficulty: 1,
      },
      split: 'train',
      ...(reset === undefined ? {} : { reset }),
    },
  };
}

function jsonObject(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    if (isObject(value)) return value;
  } catch {
    // Refused below.
  }
  throw new InvalidArgumentError('It must be a JSON object, for example {"level":2}.');
}

async function serve(flags: readonly string[]): Promise<void> {
  const server = spawn(process.execPath, [serverEntry, ...flags], { stdio: 'inherit' });
  const pass = (signal: NodeJS.Signals): void => void server.kill(signal);
  process.on('SIGINT', pass).on('SIGTERM', pass);
  process.exitCode = await new Promise<number>((resolve) => {
    server.once('exit', (code, signal) => resolve(code ?? (signal ? 1 : 0)));
  });
}
