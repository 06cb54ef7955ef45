// `longhaul env check` tries an environment server.
import { isObject } from '../../base/json.js';
import { type Command, InvalidArgumentError } from 'commander';
import { keepSecret } from '../../base/known-secrets.js';
import { serverOptionsOf } from '../../environments/openenv/server-options.js';
import { BadInput, withOutput } from '../output.js';
import { checksTable } from './doctor-checks.js';
import { type Trial, tryEnvironment } from './environment-trial.js';

export function register(program: Command): void {
  program
    .command('env')
    .description('environment servers')
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
