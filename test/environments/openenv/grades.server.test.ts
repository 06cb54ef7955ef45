// How an episode is graded by a server's rewards, and what the error says if there is no grade.
import { afterEach, describe, expect, it } from 'vitest';
import { tryEnvironment } from '../../../src/cli/stack/environment-trial.js';
import type { Grade } from '../../../src/environments/environment.js';
import {
  createOpenEnvBackend,
  type OpenEnvOptions,
} from '../../../src/environments/openenv/openenv-backend.js';
import { startScriptedServer, type ScriptedServer } from '../scripted-server.js';
import { counterTask } from '../stand-in.js';

const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

const gymSchema = { action: { title: 'MoveAction', properties: { by: { type: 'integer' } } } };

/** Each text is the `data` of an observation frame: of the reset, then of the calls in order. */
async function serve(
  [reset, ...steps]: readonly string[],
  contract: 'mcp' | 'gym' = 'mcp',
): Promise<ScriptedServer> {
  const framed = (data: string | undefined): string[] => [
    `{"type":"observation","data":${data ?? '{"observation":{},"reward":null,"done":false}'}}`,
  ];
  const server = await startScriptedServer({
    answers: ({ type, data }, call) =>
      type === 'reset' ? framed(reset) : data.type === 'list_tools' ? [] : framed(steps[call - 1]),
    routes: contract === 'gym' ? { '/schema': () => gymSchema } : {},
  });
  closers.push(() => server.close());
  return server;
}

async function graded(url: string, calls: number, options: Partial<OpenEnvOptions> = {}): Promise<Grade> {
  const backend = createOpenEnvBackend({ url, maxSessions: 1, callTimeoutMs: 3000, ...options });
  closers.push(() => backend.close());
  const opening = { seed: 1, episodeId: 'e', tryNumber: 0 };
  const environment = await backend.open(counterTask(1), opening, AbortSignal.timeout(10_000));
  const name = environment.tools[0]?.name ?? '';
  for (let turn = 0; turn < calls; turn++)
    await environment.callTool({ name, arguments: {} }, { turn, tryNumber: 0 });
  return environment.grade({ finalAnswer: '', tryNumber: 0 });
}

const noReward = '{"observation":{"text":"go"},"reward":null,"done":false}';
const step = (reward: string, more = ''): string =>
  `{"observation":{"result":"x"${more}},"reward":${reward},"done":false}`;

describe('a failed grader', () => {
  it.each([
    [
      'an error beside 0 at the end',
      '{"observation":{"result":"x","error":"judge away"},"reward":0,"done":true}',
    ],
    [
      'an error in the metadata',
      '{"observation":{"result":"x"},"metadata":{"error":"judge away"},"reward":0}',
    ],
    [
      'an error of the tool that ends the episode',
      '{"observation":{"result":{"content":[{"type":"text","text":"judge away"}],"isError":true}},"reward":0,"done":true}',
    ],
  ])('gives no grade: %s', async (_, last) => {
    const { url } = await serve([step('0'), step('1'), last]);
    await expect(graded(url, 2)).rejects.toMatchObject({
      ...{ kind: 'failed', reason: 'grade' },
      message: expect.stringMatching(/gave the reward 0 beside an error: judge away/) as string,
    });
    expect((await graded(url, 1)).outcome.value).toBe(1);
  });

  const grader = async (value: string): Promise<string> => {
    const answer = `{"type":"grade","data":${value}}`;
    const server = await startScriptedServer({
      answers: ({ type, data }) =>
        type === 'grade'
          ? [answer]
          : data.type === 'list_tools'
            ? []
            : [`{"type":"observation","data":${noReward}}`],
    });
    closers.push(() => server.close());
    return server.url;
  };

  it('that is asked by a frame gives no grade either', async () => {
    const url = await grader('{"value":0,"error":"judge away"}');
    await expect(graded(url, 0, { gradingToken: 't' })).rejects.toThrow(
      /graded 0 beside an error: judge away/,
    );
  });

  it('of a frame may be true or false, as a reward may', async () => {
    const frame = async (value: string) =>
      graded(await grader(`{"value":${value}}`), 0, { gradingToken: 't' });
    expect((await frame('true')).outcome.value).toBe(1);
    expect((await frame('false')).outcome.value).toBe(0);
    await expect(frame('"1"')).rejects.toThrow(/graded without a number: it gave as reward the text "1"/);
    await expect(frame('null')).rejects.toThrow(/graded without a number/);
  });
});

describe('a reward', () => {
  it.each(['"1.0"', '[1]', '{"score":1}', 'NaN', 'Infinity'])('%s is named', async (reward) => {
    const { url } = await serve([step('0'), step(reward)]);
    await expect(graded(url, 1)).rejects.toMatchObject({
      ...{ kind: 'failed', reason: 'grade' },
      message: expect.stringMatching(/gave as reward .*: a reward is a finite number/) as string,
    });
    const found = await tryEnvironment({ server: { url }, task: counterTask(1) });
    expect(found.find(({ check }) => check === 'reward')).toMatchObject({
      ok: false,
      detail: expect.stringMatching(/gave as reward .*: a reward is a finite number/) as string,
    });
  });

  it('makes a sum of rewards unknown', async () => {
    const { url } = await serve([noReward, step('0.5'), step('"0.5"'), step('0.5')]);
    await expect(graded(url, 3, { reward: 'sum' })).rejects.toThrow(/gave as reward the text "0.5"/);
    expect((await graded(url, 3)).outcome.value).toBe(0.5);
  });

  it('that is lost for a failed grader leaves the sum unknown', async () => {
    const { url } = await serve([
      noReward,
      '{"observation":{"result":"x"},"metadata":{"error":"judge away"},"reward":0}',
      step('0.5'),
    ]);
    await expect(graded(url, 2, { reward: 'sum' })).rejects.toThrow(/reward 0 beside an error: judge away/);
    expect((await graded(url, 2)).outcome.value).toBe(0.5);
  });

  it('of a grade frame may be true', async () => {
    const server = await startScriptedServer({
      answers: ({ type, data }) =>
        type === 'grade'
          ? ['{"type":"grade","data":{"value":true}}']
          : data.type === 'list_tools'
            ? []
            : [`{"type":"observation","data":${noReward}}`],
    });
    closers.push(() => server.close());
    expect((await graded(server.url, 0, { gradingToken: 't' })).outcome.value).toBe(1);
  });

  it('counts beside numbers of the observation that JSON lacks', async () => {
    const { url } = await serve([
      step('0'),
      '{"observation":{"result":NaN,"x":Infinity},"reward":0.25,"done":true}',
    ]);
    expect((await graded(url, 1)).outcome.value).toBe(0.25);
  });
});

describe('doing nothing where the reset gives no reward', () => {
  it('is graded as the spec says', async () => {
    const { url } = await serve([noReward, step('1')]);
    expect(await graded(url, 0, { no_call: 0 })).toEqual({
      outcome: { status: 'graded', value: 0 },
      explanation: 'no call was made, and the reset gave no reward',
    });
    await expect(graded(url, 0, { no_call: 'unknown' })).rejects.toThrow(/no reward and no grade/);
    expect((await graded(url, 1, { no_call: 0 })).outcome.value).toBe(1);
  });

  it('has no grade on a server with tools, which says how to give one', async () => {
    const { url } = await serve([noReward]);
    await expect(graded(url, 0)).rejects.toThrow(/set no_call: 0 if doing nothing solves no task/);
    // With `no_call`, a call without a reward stays without a grade: the server may grade nothing at all.
    await expect(graded(url, 1, { no_call: 0 })).rejects.toThrow(/gave no reward and no grade/);
    const found = await tryEnvironment({ server: { url }, task: counterTask(1) });
    expect(found.find(({ check }) => check === 'grade')?.detail).toMatch(/unknown: set no_call: 0/);
  });

  it('is graded 0 on a gym-style server, and where rewards are summed', async () => {
    const gym = await serve([noReward], 'gym');
    expect((await graded(gym.url, 0)).outcome.value).toBe(0);
    await expect(graded(gym.url, 0, { no_call: 'unknown' })).rejects.toThrow(/no reward and no grade/);
    expect((await graded((await serve([noReward])).url, 0, { reward: 'sum' })).outcome.value).toBe(0);
    const found = await tryEnvironment({ server: { url: gym.url }, task: counterTask(1) });
    expect(found.find(({ check }) => check === 'grade')?.detail).toMatch(
      /^doing nothing is graded 0 \(no call was made, and the reset gave no reward\)$/,
    );
  });

  it('keeps the reward of a reset that gives one', async () => {
    const { url } = await serve([step('0.5')]);
    expect((await graded(url, 0, { no_call: 0 })).outcome.value).toBe(0.5);
  });
});

describe('a reset that says that it failed', () => {
  const ended = (error: string) => `{"observation":${error},"reward":null,"done":true}`;
  it.each([
    ['mcp', ended('{"error":"task not found"}')],
    ['gym', ended('{"error":{"message":"task not found"}}')],
    ['mcp', '{"observation":{},"error":"task not found","reward":0,"done":1}'],
  ] as const)('opens no episode: %s', async (contract, reset) => {
    const { url } = await serve([reset, step('1')], contract);
    await expect(graded(url, 0)).rejects.toMatchObject({
      ...{ kind: 'failed', reason: 'open' },
      message: `${url} ends the episode at its reset: task not found`,
    });
  });

  it('but an error that it shows may be the task', async () => {
    const { url } = await serve([
      '{"observation":{"error":"NameError"},"reward":null,"done":false}',
      step('1'),
    ]);
    expect((await graded(url, 1)).outcome.value).toBe(1);
  });
});

it.each([
  ['"observation":"It is sunny"', 'It is sunny', false],
  ['"observation":[1.0,2]', '[1.0,2]', false],
  ['"observation":null,"error":"boom"', 'boom', true],
  ['"result":{"content":[{"type":"text","text":"hi"}]}', 'hi', false],
  ['"observation":null', 'the server showed nothing', false],
])('a call whose answer has %s shows what is there', async (json, text, isError) => {
  for (const contract of ['mcp', 'gym'] as const) {
    const { url } = await serve([noReward, `{${json},"reward":0}`], contract);
    const backend = createOpenEnvBackend({ url, maxSessions: 1, callTimeoutMs: 3000 });
    closers.push(() => backend.close());
    const opening = { seed: 1, episodeId: 'e', tryNumber: 0 };
    const environment = await backend.open(counterTask(1), opening, AbortSignal.timeout(10_000));
    const name = environment.tools[0]?.name ?? '';
    const shown = await environment.callTool({ name, arguments: {} }, { turn: 0, tryNumber: 0 });
    expect(shown).toEqual({ content: [{ type: 'text', text }], isError });
  }
});
