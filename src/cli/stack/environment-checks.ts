// What `longhaul doctor --spec` says of an environment server, after it has begun an episode there.
import { refuseVerifiers } from '../../data/environment-check.js';
import type { DataFiles } from '../../data/run-dataset.js';
import { environmentKind } from '../../environments/environment-kinds.js';
import { fleetState } from '../../environments/fleet/fleet-kind.js';
import { gradeOfNoCall, type RewardRule } from '../../environments/openenv/observed-reward.js';
import { askServerFacts, nameOfContract, type ServerFacts } from '../../environments/openenv/server-facts.js';
import { OpenEnvServer, type ServerOptions } from '../../environments/openenv/openenv-server.js';
import { serverOptionsOf } from '../../environments/openenv/server-options.js';
import type { EnvironmentSpec, RunSpec } from '../../spec/run-spec.js';
import { environmentOf } from '../../spec/environments/environment-schema.js';
import type { Task, ToolSpec } from '../../spec/records/task.js';
import type { Tokenizer } from '../../episode/tokenizer.js';
import { toolListText } from '../../episode/tool-list.js';

const withinMs = 60_000;
const shownTools = 6;

type Facts = Omit<ServerFacts, 'name' | 'version'>;

/** Begins an episode of one of the first tasks of the environment (`own`). If nobody can play there, throws an error with the fix. */
export async function playedEnvironment(
  environment: EnvironmentSpec & { url: string },
  own: readonly Task[],
  spec: Pick<RunSpec, 'generator'>,
  tokenizer: Parameters<typeof toolTokensText>[2],
  gradingToken?: string,
): Promise<string> {
  const { url, env_key, grading_token_env } = environment;
  const options = {
    ...{ ...serverOptionsOf(environment), url, timeoutMs: withinMs },
    gradesByToken: grading_token_env !== undefined,
    ...(gradingToken ? { gradingToken } : {}),
  };
  const signal = AbortSignal.timeout(withinMs);
  const asked = own.length === 0 ? askWithoutTask(options, signal) : askServerFacts(options, own, signal);
  const facts = await asked.catch((error: unknown) => {
    throw signal.aborted ? new Error(`${url} has not begun an episode within ${withinMs / 1000} s`) : error;
  });
  if (facts.reward_rule === null && facts.transport === 'ws' && own.length > 0)
    throw new Error(`${url} opens none of the first tasks of ${env_key}: read the log of the server`);
  if (facts.tools === null && facts.transport === 'ws' && own.length > 0)
    throw new Error(`${url} lists no tools, so a model can do nothing there`);
  const text = factsText(environment, facts);
  return facts.tools === null ? text : `${text}; ${await toolTokensText(facts.tools, spec, tokenizer)}`;
}

/** What Fleet says of the key and of the tasks. Throws if a run could not begin, with the fix. */
export async function fleetText(
  environment: EnvironmentSpec,
  environments: readonly EnvironmentSpec[],
  { tasks, verifiers }: Pick<DataFiles, 'tasks' | 'verifiers'>,
): Promise<string> {
  const own = tasks.filter(({ env_key }) => environmentOf(environments, env_key) === environment);
  refuseVerifiers(environments, own, verifiers);
  const signal = AbortSignal.timeout(60_000);
  const late = (error: unknown): never => {
    throw signal.aborted ? new Error('Fleet did not answer within 60 s: check the network, or url') : error;
  };
  const refusal = await environmentKind(environment).refusal(environment, own, signal).catch(late);
  if (refusal) throw new Error(`${refusal.problem}: ${refusal.fix}`);
  const state = await fleetState(environment, signal).catch(late);
  return `${state}; ${own.length} tasks are checked; no episode was begun`;
}

async function askWithoutTask(options: ServerOptions, signal: AbortSignal): Promise<Facts> {
  const { contract, transport } = await new OpenEnvServer(options).look(withinMs, signal);
  const tools = contract.act ? [contract.act] : null;
  return { contract: nameOfContract(contract.kind), transport, tools, reward_rule: null };
}

function factsText(
  environment: EnvironmentSpec & { url: string },
  { contract, transport, tools, left_out, reward_rule }: Facts,
): string {
  const { url, reward = 'last', no_call } = environment;
  const names = tools?.map(({ name }) => name) ?? [];
  const more = names.length > shownTools ? `, and ${names.length - shownTools} more` : '';
  const kind = contract === 'openenv/gym' ? 'a gym-style server' : 'a server with tools';
  return [
    `${url} is ${kind}, over ${transport}`,
    ...(names.length === 0 ? [] : [`tools: ${names.slice(0, shownTools).join(', ')}${more}`]),
    ...(left_out === undefined ? [] : [leftOutText(left_out)]),
    reward_rule === null ? 'no episode was begun' : gradeTexts[reward_rule],
    ...(reward_rule === 'later_reward'
      ? [
          noCallText(contract === 'openenv/gym' ? 'gym' : 'mcp', {
            reward,
            ...(no_call === undefined ? {} : { no_call }),
          }),
        ]
      : []),
  ].join('; ');
}

/** Such tools are a mistake of the server. */
export function leftOutText(left_out: readonly string[]): string {
  return `of the tools that it lists, ${left_out.join(', ')}: a model is shown the first of each name`;
}

function noCallText(contract: 'mcp' | 'gym', rule: Pick<RewardRule, 'reward' | 'no_call'>): string {
  if (gradeOfNoCall(contract, rule) === 0) return 'doing nothing is graded 0';
  const fix = rule.no_call === undefined ? ': set no_call: 0 if doing nothing solves no task' : '';
  return `doing nothing gets no grade${fix}`;
}

const gradeTexts: Record<NonNullable<ServerFacts['reward_rule']>, string> = {
  grade: 'it grades on request',
  reward: 'its reset gives a reward, so rewards are the grade',
  later_reward: 'its reset gives no reward: whether it grades is seen when an episode ends',
};

/** Usual for English and JSON, where the tokenizer cannot be read here. */
const charactersPerToken = 4;
/** From this share of the longest prompt on, a shorter list is proposed. */
const largeShare = 0.25;

type Formats = RunSpec['generator']['tools_format'];

/** `tokenizer`: null if it cannot be read here. Throws an Error with the fix if the tools leave no room in a prompt. */
export async function toolTokensText(
  tools: readonly ToolSpec[],
  { generator }: Pick<RunSpec, 'generator'>,
  tokenizer: Pick<Tokenizer, 'encodeLong'> | null,
): Promise<string> {
  const { tools_format, system_prompt, max_input_length: most } = generator;
  const tokensIn = async (format: Formats): Promise<number> => {
    const list = toolListText(tools, format, { isShort: system_prompt === 'short' });
    return tokenizer
      ? (await tokenizer.encodeLong(list)).length
      : Math.ceil(list.length / charactersPerToken);
  };
  const count = await tokensIn(tools_format);
  const about = tokenizer ? '' : 'about ';
  const said = `${tools.length} ${tools.length === 1 ? 'tool takes' : 'tools take'} ${about}${count} tokens of every prompt`;
  const isLarge = count > largeShare * most && tools_format !== 'signatures';
  const shorter = isLarge ? `tools_format: signatures takes ${about}${await tokensIn('signatures')}` : null;
  if (count >= most)
    throw new Error(
      `${said}, and generator.max_input_length is ${most}: raise it${shorter ? `, or shorten the list (${shorter})` : ''}`,
    );
  return `${said}, which may have ${most}${shorter ? ` (${shorter})` : ''}`;
}
