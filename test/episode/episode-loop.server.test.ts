// Episodes against the example server, over its WebSocket.
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { oracle } from '../../examples/apps/task-key.js';
import { generateTasks } from '../../examples/apps/generate.js';
import { appByName } from '../../examples/apps/registry.js';
import { openWorld } from '../../examples/apps/world.js';
import { type EnvironmentBackend, EnvironmentError } from '../../src/environments/environment.js';
import { createOpenEnvBackend } from '../../src/environments/openenv/openenv-backend.js';
import { servedApps, faultsOfApps } from '../../examples/apps/server/served-apps.js';
import {
  createEnvironmentServer,
  type EnvironmentServer,
} from '../../examples/apps/server/environment-server.js';
import { loadChatTemplate } from '../../src/episode/chat-template.js';
import { tokenizeDemonstration } from '../../src/episode/demonstration.js';
import { type EpisodePlay, type EpisodeRequest, playEpisode } from '../../src/episode/episode-loop.js';
import { EnvironmentsUnavailable } from '../../src/episode/outage-clock.js';
import { loadTokenizer } from '../../src/episode/tokenizer.js';
import type { DemonstrationMessage, Task } from '../../src/spec/records/task.js';
import { startHttpWorld } from '../environments/http-world.js';
import { counterTask, startCounterServer, token } from '../environments/stand-in.js';
import { hermes, sampling } from './fixtures.js';
import { scriptedPolicy } from './scripted-policy.js';
import { withFaults } from '../environments/faulty-backend.js';

const tokenizer = loadTokenizer(readFileSync('presets/tokenizers/small/tokenizer.json'));
const template = loadChatTemplate(
  readFileSync('presets/tokenizers/small/chat_template.jinja', 'utf8'),
  tokenizer,
);
const gradingToken = 'test-grading-token';
const quiet = new AbortController().signal;
const tasks = generateTasks({ apps: ['tracker', 'booking'], seed: 5, train_tasks: 64, held_out_tasks: 0 });
const twoStep = tasks.find((task) => task.difficulty === 2) as Task;

let server: EnvironmentServer;
let backend: EnvironmentBackend;

beforeAll(async () => {
  server = await createEnvironmentServer({
    port: 0,
    apps: servedApps(),
    faults: faultsOfApps,
    gradingToken,
  });
  backend = createOpenEnvBackend({ url: server.url, gradingToken, maxSessions: 16 });
});
afterAll(async () => {
  await backend.close();
  await server.close();
});

const callText = (call: unknown) => `<tool_call>${JSON.stringify(call)}</tool_call>`;
const oracleTurns = (task: Task) => [...oracle(task.task_key).map(callText), '<done>'];

function request(task: Task, overrides: Partial<EpisodeRequest> = {}): EpisodeRequest {
  return {
    task,
    sampling,
    key: { seed: 1, domain: 'train', step: 1, slot: 0, sample: 0 },
    state: 'a'.repeat(64),
    policyStep: 0,
    episodeSeed: 7,
    episodeId: `test/${task.task_key}`,
    maxWaitMs: 2000,
    ...overrides,
  };
}

function play(
  turns: readonly string[],
  overrides: Partial<EpisodeRequest> = {},
  environments: EnvironmentBackend = backend,
) {
  const engine = scriptedPolicy(tokenizer, turns);
  const done = playEpisode(
    { engine, backend: environments, tokenizer, template, ...hermes },
    request(overrides.task ?? twoStep, overrides),
    quiet,
  );
  return { engine, done };
}

describe('an episode of a game', () => {
  const game = (prompt: string): Task => ({ ...counterTask(3), prompt, reset: { goal: 3 } });
  const turns = [2, 1, 5].map((by) => callText({ name: 'act', arguments: { by } }));

  test.each([
    ['Play well.', 'Play well.\n\nCount to 3.'],
    ['', 'Count to 3.'],
  ])(
    'with the prompt %j begins with what the game shows, and ends when the game ends',
    async (prompt, shown) => {
      const world = await startHttpWorld();
      const environments = createOpenEnvBackend({ url: world.url, maxSessions: 4 });
      try {
        const { engine, done } = play(turns, { task: game(prompt) }, environments);
        const { outcome, stop_reason, tokens, turns: taken } = await done;
        expect([outcome, stop_reason]).toEqual([{ status: 'graded', value: 1 }, 'ended']);
        expect(taken).toHaveLength(2);
        expect(tokenizer.decode(engine.requests[0]!.tokens)).toContain(shown);
        // The last observation is not part of the transcript, since no turn follows it.
        expect(tokenizer.decode(tokens)).toMatch(/Tool result:\n2(?!.*Tool result)/s);
      } finally {
        await environments.close();
        await world.close();
      }
    },
  );
});

describe('an episode', () => {
  test('is graded 1 if the model does what the task asks', async () => {
    const outcomes = await Promise.all(
      tasks.map((task) => play(oracleTurns(task), { task }).done.then(({ outcome }) => outcome)),
    );
    expect(outcomes).toEqual(tasks.map(() => ({ status: 'graded', value: 1 })));
  });

  test('is graded 0 if the model does nothing', async () => {
    const { outcome, stop_reason } = await play(['<done>']).done;
    expect([outcome, stop_reason]).toEqual([{ status: 'graded', value: 0 }, 'done']);
  });

  test('shows the grader’s explanation to people and never to the model', async () => {
    for (const task of tasks) {
      const { engine, done } = play([...oracleTurns(task).slice(0, -2), 'I am not sure.', '<done>'], {
        task,
      });
      const { outcome, explanation, tokens } = await done;
      expect(outcome).toEqual({ status: 'graded', value: 0 });
      expect(explanation).toMatch(/should be|missing|unexpected/);
      const shown = [tokens, ...engine.requests.map((asked) => asked.tokens)].map((one) =>
        tokenizer.decode(one),
      );
      for (const text of shown)
        for (const said of [explanation ?? '', ', should be "', 'unexpected [', 'missing ['])
          expect(text).not.toContain(said);
    }
    const { explanation } = await play(oracleTurns(twoStep)).done;
    expect(explanation).toBe('the database is as it should be');
  });

  test('has no more errors than attempted calls, whatever the model writes', async () => {
    const { metrics } = await play(['<tool_call>{', '<tool_call>[]</tool_call>', '<tool_call>', '<done>'])
      .done;
    expect(metrics.tool_errors).toBeGreaterThan(1);
    expect(metrics.tool_errors).toBeLessThanOrEqual(metrics.tool_calls);
  });

  test('keeps sampled tokens and log-probs verbatim, and ends with a sampled token', async () => {
    const turns = oracleTurns(twoStep);
    const { tokens, turns: records, logprobs, prompt_length } = await play(turns).done;
    expect(records.map(({ start, end }) => tokenizer.decode(tokens.slice(start, end)))).toEqual(turns);
    expect(records[0]?.start).toBe(prompt_length);
    expect(records.at(-1)?.end).toBe(tokens.length);
    expect(logprobs).toHaveLength(records.reduce((sum, { start, end }) => sum + end - start, 0));
  });

  test('has the same tokens as a demonstration with the same text', async () => {
    for (const task of tasks) {
      const episode = await play(oracleTurns(task), { task }).done;
      const world = openWorld(task.task_key);
      const messages: DemonstrationMessage[] = [{ role: 'user', content: task.prompt }];
      for (const call of oracle(task.task_key)) {
        messages.push({ role: 'assistant', content: callText(call) });
        messages.push({ role: 'tool', content: world.call(call).text });
      }
      world.close();
      messages.push({ role: 'assistant', content: '<done>' });
      const { env_key, env_variables } = task;
      const shown = await tokenizeDemonstration(
        { tokenizer, template, ...hermes },
        { kind: 'teacher', env_key, env_variables, messages },
        appByName(env_key).tools,
        sampling,
      );
      expect(shown.tokens).toEqual(episode.tokens);
      expect(shown.prompt_length).toBe(episode.prompt_length);
      expect(shown.spans).toEqual(episode.turns.map(({ start, end }) => ({ start, end })));
    }
  });

  test('frames the conversation exactly as the template does', async () => {
    const turns = ['Let me think.<|im_end|>', ...oracleTurns(twoStep)];
    const { tokens } = await play(turns).done;
    const text = tokenizer.decode(tokens);
    expect(text).toContain('Let me think.<|im_end|>\n<|im_start|>user\nNo tool call found.');
    expect(text).toContain('</tool_call><|im_end|>\n<|im_start|>user\nTool result:\n{');
    expect(text).not.toContain('<|im_end|><|im_end|>');
  });

  test('is graded even if it reaches the turn limit', async () => {
    const turns = oracleTurns(twoStep).slice(0, -1);
    const { outcome, stop_reason } = await play(turns, { sampling: { ...sampling, max_turns: turns.length } })
      .done;
    expect([outcome, stop_reason]).toEqual([{ status: 'graded', value: 1 }, 'max_turns']);
  });

  test('never exceeds max_sequence_length', async () => {
    const short = { ...sampling, max_sequence_length: 200, max_input_length: 190 };
    const { tokens, stop_reason } = await play(['Well. ', 'Well. ', 'Well. ', 'Well. ', 'Well. '], {
      sampling: short,
    }).done;
    expect(stop_reason).toBe('length');
    expect(tokens.length).toBeLessThanOrEqual(200);
  });

  test('throws the reason when it is cut off, and releases its session', async () => {
    const stop = new AbortController();
    const reason = new Error('the node drains');
    const engine = {
      generate: () =>
        new Promise<never>((_, reject) => {
          stop.signal.addEventListener('abort', () => reject(new Error('cancelled')));
          setTimeout(() => stop.abort(reason), 20);
        }),
    };
    let closed = 0;
    const counting: EnvironmentBackend = {
      ...backend,
      open: async (...args) => {
        const environment = await backend.open(...args);
        return {
          tools: environment.tools,
          callTool: (call, options) => environment.callTool(call, options),
          grade: (options) => environment.grade(options),
          close: () => environment.close().then(() => void (closed += 1)),
        };
      },
    };
    const playing = playEpisode(
      { engine, backend: counting, tokenizer, template, ...hermes },
      request(twoStep),
      stop.signal,
    );
    await expect(playing).rejects.toBe(reason);
    expect(closed).toBe(1);
  });
});

describe('a turn with a mistake is answered and counted, and the episode continues to its grade:', () => {
  const increment = callText({ name: 'increment', arguments: {} });
  const limit = 300;
  let counter: EnvironmentServer;
  let counterBackend: EnvironmentBackend;
  beforeAll(async () => {
    counter = await startCounterServer({ maxOutputChars: 20_000_000 });
    counterBackend = createOpenEnvBackend({ url: counter.url, gradingToken: token, maxSessions: 2 });
  });
  afterAll(async () => {
    await counterBackend.close();
    await counter.close();
  });

  test.each([
    {
      what: 'a call that is no JSON',
      turn: '<tool_call>{"name": increment</tool_call>',
      answer: 'Error: the tool call is not valid JSON. Use <tool_call>',
      ...{ tool: undefined, calls: 2, errors: 1 },
    },
    {
      what: 'a call without a name',
      turn: callText({ arguments: {} }),
      answer: 'Error: the tool call has no "name". Use <tool_call>',
      ...{ tool: undefined, calls: 2, errors: 1 },
    },
    {
      what: 'a call of a tool that does not exist',
      turn: callText({ name: 'incremnt', arguments: {} }),
      answer: 'Error: unknown tool incremnt',
      ...{ tool: 'incremnt', calls: 2, errors: 1 },
    },
    {
      what: 'a call that the tool refuses',
      turn: callText({ name: 'refuse', arguments: {} }),
      answer: 'Error: repository x not found',
      ...{ tool: 'refuse', calls: 2, errors: 1 },
    },
    {
      what: 'ten megabytes of output',
      turn: callText({ name: 'shout', arguments: {} }),
      answer: `${'x'.repeat(limit)}\n[TRUNCATED: ${limit} of 10000000 characters shown]`,
      ...{ tool: 'shout', calls: 2, errors: 0 },
    },
    {
      what: 'no call at all',
      turn: 'Let me think.<|im_end|>',
      answer: 'No tool call found. Use <tool_call>',
      ...{ tool: undefined, calls: 1, errors: 0 },
    },
  ])('$what', async ({ turn, answer, tool, calls, errors }) => {
    const played = await play(
      [turn, increment, '<done>'],
      { task: counterTask(1), sampling: { ...sampling, max_output_chars: limit } },
      counterBackend,
    ).done;
    const [first] = played.turns;
    const shown = played.tokens.slice(first?.end, played.turns[1]?.start);
    expect(tokenizer.decode(shown)).toContain(answer);
    expect([first?.tool, first?.error]).toEqual([tool, errors > 0 ? true : undefined]);
    expect(played.metrics).toEqual({ turns: 3, tool_calls: calls, tool_errors: errors });
    expect(played).toMatchObject({
      outcome: { status: 'graded', value: 1 },
      stop_reason: 'done',
      failures: {},
    });
  });
});

describe('a prompt', () => {
  const promptLength = async () => (await play(['<done>']).done).prompt_length;

  test.each([
    ['max_input_length', 0],
    ['max_sequence_length', 1],
  ] as const)('longer than %s leads to an unknown outcome, and no turn is sampled', async (name, room) => {
    const length = await promptLength();
    const within = async (limit: number) => {
      const { engine, done } = play(['<done>'], { sampling: { ...sampling, [name]: limit } });
      return { ...(await done), asked: engine.requests };
    };
    const fits = await within(length + room);
    expect([fits.outcome.status, fits.asked.length]).toEqual(['graded', 1]);
    const tooLong = await within(length + room - 1);
    expect(tooLong.outcome).toEqual({ status: 'unknown', reason: 'prompt_too_long', failures: 0 });
    expect([tooLong.stop_reason, tooLong.tokens, tooLong.asked]).toEqual(['unknown', [], []]);
    expect(tooLong.failure).toContain(`the prompt has ${length} tokens`);
  });
});

describe('when the environment fails', () => {
  /** Makes the given operation of the real server fail the first `times` times. */
  function failing(at: 'open' | 'call' | 'grade', times: number, error: () => EnvironmentError) {
    let left = times;
    const fail = () => left-- > 0;
    const wrapped: EnvironmentBackend = {
      healthy: () => backend.healthy(),
      close: () => Promise.resolve(),
      async open(...args) {
        if (at === 'open' && fail()) throw error();
        const environment = await backend.open(...args);
        return {
          tools: environment.tools,
          callTool: (call, options) =>
            at === 'call' && fail() ? Promise.reject(error()) : environment.callTool(call, options),
          grade: (options) =>
            at === 'grade' && fail() ? Promise.reject(error()) : environment.grade(options),
          close: () => environment.close(),
        };
      },
    };
    return wrapped;
  }
  const lost = () => new EnvironmentError('unavailable', 'socket_lost', 'the socket closed');
  const broken = () => new EnvironmentError('failed', 'call', 'the server could not do it');

  test('the episode waits for a lost server, is not charged, and samples no finished turn again', async () => {
    const turns = oracleTurns(twoStep);
    const { engine, done } = play(turns, {}, failing('grade', 2, lost));
    const { outcome, failures } = await done;
    expect([outcome, failures]).toEqual([{ status: 'graded', value: 1 }, { socket_lost: 2 }]);
    expect(engine.requests).toHaveLength(turns.length);
  });

  test('a failure of a healthy server is retried, then the outcome is unknown, never 0', async () => {
    const twice = await play(oracleTurns(twoStep), {}, failing('call', 2, broken)).done;
    expect([twice.outcome, twice.failures]).toEqual([{ status: 'graded', value: 1 }, { call: 2 }]);
    const always = await play(oracleTurns(twoStep), {}, failing('call', 99, broken)).done;
    expect([always.outcome, always.stop_reason]).toEqual([
      { status: 'unknown', reason: 'call', failures: 3 },
      'unknown',
    ]);
    expect([twice.failure, always.failure]).toEqual([undefined, 'the server could not do it']);
  });

  test('an episode whose call kills the server again and again is charged from the third time on', async () => {
    const { outcome } = await play(oracleTurns(twoStep), {}, failing('call', 99, lost)).done;
    expect(outcome).toEqual({ status: 'unknown', reason: 'socket_lost', failures: 3 });
  });

  test('a server that stays down ends the wait with EnvironmentsUnavailable', async () => {
    const down: EnvironmentBackend = { ...failing('open', 99, lost), healthy: () => Promise.resolve(false) };
    await expect(play(['<done>'], { maxWaitMs: 300 }, down).done).rejects.toThrow(EnvironmentsUnavailable);
  });

  /**
   * Plays each task once correctly and once without doing anything, so that there are passes and zeros. A fault must not turn a pass into a
   * zero, or a zero into a pass.
   */
  function playAll(environments: EnvironmentBackend, maxFailures: number): Promise<EpisodePlay[]> {
    const limits = { ...sampling, max_episode_failures: maxFailures };
    return Promise.all(
      tasks.slice(0, 48).flatMap((task, i) =>
        [oracleTurns(task), ['<done>']].map((turns, right) => {
          const overrides = { task, sampling: limits, episodeSeed: 2 * i + right, maxWaitMs: 20_000 };
          return play(turns, overrides, environments).done;
        }),
      ),
    );
  }

  test.each([
    { maxFailures: 3, leastUnknown: 0 },
    // A single charged failure ends an episode. If such a failure counted as a grade, the episode would get a zero.
    { maxFailures: 1, leastUnknown: 0.2 },
  ])(
    'graded episodes keep their grades when a fifth of all calls fail, with at most $maxFailures charged failures per episode',
    async ({ maxFailures, leastUnknown }) => {
      const faulty = withFaults(
        createOpenEnvBackend({ url: server.url, gradingToken, maxSessions: 16, callTimeoutMs: 500 }),
        { fault_rate: 0.2 },
      );
      try {
        const calm = await playAll(backend, maxFailures);
        const faulted = await playAll(faulty, maxFailures);
        const share = (holds: (play: EpisodePlay) => boolean): number =>
          faulted.filter(holds).length / faulted.length;
        const met = share(({ failures }) => Object.keys(failures).length > 0);
        const unknown = share(({ outcome }) => outcome.status === 'unknown');
        console.log(`met a fault: ${met.toFixed(2)}, unknown: ${unknown.toFixed(2)} of ${faulted.length}`);
        // An episode makes two to five calls, so at least 1 − 0.8² = 0.36 of the episodes meet a fault.
        expect(met).toBeGreaterThan(0.36);
        expect(unknown).toBeGreaterThanOrEqual(leastUnknown);
        const values = (plays: readonly EpisodePlay[]) =>
          plays.map(({ outcome }, i) =>
            faulted[i]?.outcome.status === 'graded' && outcome.status === 'graded' ? outcome.value : null,
          );
        expect(values(faulted)).toEqual(values(calm));
        expect(new Set(values(calm))).toContain(1);
        expect(new Set(values(calm))).toContain(0);
        for (const { outcome } of faulted) {
          if (outcome.status === 'unknown') expect(outcome.failures).toBe(maxFailures);
        }
      } finally {
        await faulty.close();
      }
    },
    120_000,
  );
});
