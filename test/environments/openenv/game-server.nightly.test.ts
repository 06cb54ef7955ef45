// Servers of other kinds than ours: without tools, and without sockets. Each is found out by asking, and no mistake of it or of ours counts as
// one of the model.
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { Environment, EnvironmentBackend } from '../../../src/environments/environment.js';
import {
  createOpenEnvBackend,
  type OpenEnvOptions,
} from '../../../src/environments/openenv/openenv-backend.js';
import { askServerFacts } from '../../../src/environments/openenv/server-facts.js';
import { textResult } from '../../../src/environments/tool-results.js';
import { contentText } from '../../../src/episode/observation.js';
import type { Task } from '../../../src/spec/records/task.js';
import { pythonWith } from '../../support/python/python-environments.js';
import { type OpenEnvFixture, startGameServer } from '../../support/servers/openenv-fixture.js';
import { counterTask } from '../stand-in.js';

const python = await pythonWith('openenv');

const quiet = new AbortController().signal;
const task = (change: Partial<Task> = {}): Task => ({
  ...{ ...counterTask(1), task_key: 'guess/1', env_key: 'guess', prompt: '' },
  ...change,
});
/** With this seed the number is 6 of 8, and 2 of 4. */
const seed = 5;

describe.skipIf(!python)('a server without tools', () => {
  let servers: Record<'gym' | 'http', OpenEnvFixture>;
  let locked: OpenEnvFixture;
  const backends: EnvironmentBackend[] = [];
  beforeAll(async () => {
    const [gym, http, other] = await Promise.all([
      startGameServer(python, 'gym'),
      startGameServer(python, 'http'),
      startGameServer(python, 'http', { key: 'secret-key' }),
    ]);
    servers = { gym, http };
    locked = other;
  });
  afterEach(() => Promise.all(backends.splice(0).map((backend) => backend.close())));
  afterAll(() => Promise.all([servers?.gym.stop(), servers?.http.stop(), locked?.stop()]));

  function backendOf(url: string, options: Partial<OpenEnvOptions> = {}): EnvironmentBackend {
    const backend = createOpenEnvBackend({ url, maxSessions: 64, ...options });
    backends.push(backend);
    return backend;
  }

  const open = (backend: EnvironmentBackend, change: Partial<Task> = {}, episode = 'ep') =>
    backend.open(task(change), { seed, episodeId: episode, tryNumber: 0 }, quiet);
  let turn = 0;
  const guess = (env: Environment, args: Record<string, unknown>, name = 'act') =>
    env.callTool({ name, arguments: args }, { turn: turn++, tryNumber: 0 });
  const grade = async (env: Environment) =>
    (await env.grade({ finalAnswer: '', tryNumber: 0 })).outcome.value;

  describe.each(['gym', 'http'] as const)('of kind %s', (kind) => {
    it('offers its action as a tool, shows its first observation, and ends the episode itself', async () => {
      const env = await open(backendOf(servers[kind].url));
      expect(env.tools).toMatchObject([
        {
          name: 'act',
          description: 'Guesses the number.',
          input_schema: { properties: { number: { type: 'integer' } }, required: ['number'] },
        },
      ]);
      expect(Object.keys(env.tools[0]!.input_schema.properties)).toEqual(['number']);
      expect(env.opening).toBe('I think of a number from 1 to 8.');
      expect(await guess(env, { number: 3 })).toEqual(textResult('No, higher.'));
      expect(await guess(env, { number: 6 })).toEqual({ ...textResult('That is it.'), ends: true });
      expect(await grade(env)).toBe(1);
      await env.close();
    });

    it('shows the model its mistakes', async () => {
      const env = await open(backendOf(servers[kind].url));
      const wrong = await guess(env, { number: 'six' });
      expect(wrong.isError).toBe(true);
      expect(contentText(wrong.content)).toMatch(/^number: Input should be a valid integer[^{]*$/);
      expect(await guess(env, {}, 'guess')).toEqual(
        textResult('there is no tool guess: the only one is act', true),
      );
      expect(await guess(env, { number: 6 })).toMatchObject({ ends: true });
      await env.close();
    });

    it('gets what a task says for its reset', async () => {
      const env = await open(backendOf(servers[kind].url), { reset: { highest: 4 } });
      expect(env.opening).toBe('I think of a number from 1 to 4.');
      expect(await guess(env, { number: 2 })).toMatchObject({ ends: true });
      await env.close();
    });

    it('is graded by the sum of its rewards, if the spec says so, and by the reward of a solved task', async () => {
      const rewards = async (options: Partial<OpenEnvOptions>): Promise<number> => {
        const env = await open(backendOf(servers[kind].url, options));
        for (const number of [1, 2, 6]) await guess(env, { number });
        const value = await grade(env);
        await env.close();
        return value;
      };
      expect(await rewards({})).toBe(1);
      expect(await rewards({ reward: 'sum' })).toBe(1.5);
      expect(await rewards({ reward: 'sum', success_at: 3 })).toBe(0.5);
    });

    it('gives no grade for an episode without a reward', async () => {
      const env = await open(backendOf(servers[kind].url));
      await expect(grade(env)).rejects.toMatchObject({ kind: 'failed', reason: 'grade' });
      await env.close();
    });

    it('plays 64 episodes that are opened at once, each in its own world', async () => {
      const backend = backendOf(servers[kind].url);
      const values = await Promise.all(
        Array.from({ length: 64 }, async (_, index) => {
          const highest = 2 + (index % 7);
          const env = await open(backend, { reset: { highest } }, `ep-${index}`);
          const secret = 1 + (seed % highest);
          await guess(env, { number: secret === 1 ? 2 : 1 });
          const { content, ends } = await guess(env, { number: secret });
          await env.close();
          return { text: contentText(content), ends };
        }),
      );
      expect(new Set(values.map(({ text, ends }) => `${text} ${ends}`))).toEqual(
        new Set(['That is it. true']),
      );
    });
  });

  it('is another environment than one with tools, and its only world is not reset to ask for facts', async () => {
    const facts = (kind: 'gym' | 'http') =>
      askServerFacts({ url: servers[kind].url, gradesByToken: false, timeoutMs: 5_000 }, [task()], quiet);
    expect(await facts('gym')).toMatchObject({
      ...{ contract: 'openenv/gym', transport: 'ws', reward_rule: 'later_reward' },
      tools: [{ name: 'act' }],
    });
    const env = await open(backendOf(servers.http.url));
    await guess(env, { number: 1 });
    expect(await facts('http')).toMatchObject({
      ...{ contract: 'openenv/gym', transport: 'http', reward_rule: null },
      tools: [{ name: 'act' }],
    });
    expect(await guess(env, { number: 6 })).toMatchObject(textResult('That is it.'));
    await env.close();
  });

  it('that asks for a key is played with the headers of the spec, and refused without them', async () => {
    await expect(open(backendOf(locked.url))).rejects.toMatchObject({
      kind: 'failed',
      message: expect.stringContaining('headers_env') as string,
    });
    const env = await open(backendOf(locked.url, { headers: { 'X-Key': 'secret-key' } }));
    expect(await guess(env, { number: 6 })).toMatchObject(textResult('That is it.'));
    await env.close();
  });

  it('is waited for when it is gone', async () => {
    const mortal = await startGameServer(python, 'http');
    const backend = backendOf(mortal.url);
    const env = await open(backend);
    await mortal.stop();
    await expect(guess(env, { number: 1 })).rejects.toMatchObject({ kind: 'unavailable' });
    await env.close();
    await expect(open(backend)).rejects.toMatchObject({ kind: 'unavailable' });
    expect(await backend.healthy()).toBe(false);
  });
});
