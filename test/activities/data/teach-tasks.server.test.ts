// A teacher behind an OpenAI-compatible endpoint tries the tasks of a dataset that have no solution.
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { finishDataset } from '../../../src/activities/data/finish-dataset.js';
import { gateTasks } from '../../../src/activities/data/gate-tasks.js';
import { gatherDataset } from '../../../src/activities/data/gather-dataset.js';
import { teachTasks } from '../../../src/activities/data/teach-tasks.js';
import { readDatasetItems, requirePrepared } from '../../../src/data/prepared-dataset.js';
import type { Exclusion } from '../../../src/data/task-selection.js';
import type { EnvironmentServer } from '../../../examples/apps/server/environment-server.js';
import type { Demonstration } from '../../../src/spec/records/task.js';
import { parseDatasetSpec } from '../../../src/spec/dataset-spec.js';
import type { OpenedStore } from '../../../src/store/runs/episodes.js';
import { openStore } from '../../../src/store/open-store.js';
import { counterTask, startCounterServer, token } from '../../environments/stand-in.js';
import { longhaul } from '../../support/command-line.js';
import { environmentWith } from '../../support/environment-variables.js';
import { scratchFolder } from '../../support/scratch-folder.js';

const folder = scratchFolder();
let environments: EnvironmentServer;
let store: OpenedStore;
let restore: () => void;
let endpoint: Server;
/** What the endpoint was asked, and how it answers. */
interface Asked {
  model: string;
  messages: { role: string; content: string }[];
  max_tokens?: number;
  max_completion_tokens?: number;
}
const asked: (Asked & { key: string | undefined })[] = [];
let answer: (
  messages: { role: string; content: string }[],
  sent: Asked,
) => { status?: number; body: unknown };

beforeAll(async () => {
  restore = environmentWith({ COUNTER_TOKEN: token, TEACHER_KEY: 'a-teacher-key' });
  environments = await startCounterServer();
  store = await openStore(`dir:${join(folder, 'store')}`);
  endpoint = createServer((request, response) => {
    let text = '';
    request.on('data', (piece: Buffer) => (text += piece.toString()));
    request.on('end', () => {
      if (request.method === 'GET') return void response.writeHead(404).end();
      const sent = JSON.parse(text) as Asked;
      asked.push({ ...sent, key: request.headers.authorization });
      const { status = 200, body } = answer(sent.messages, sent);
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    });
  });
  await new Promise<void>((resolve) => endpoint.listen(0, '127.0.0.1', resolve));
});
beforeEach(() => {
  asked.length = 0;
  answer = countsUp;
});
afterAll(async () => {
  restore();
  endpoint.closeAllConnections();
  endpoint.close();
  await environments.close();
});

const said = (content: string) => ({
  body: {
    choices: [{ message: { role: 'assistant', content } }],
    usage: { prompt_tokens: 100, completion_tokens: 10 },
  },
});
const increment = '<tool_call>{"name": "increment", "arguments": {}}</tool_call>';

/** Counts to the number in the prompt, after a mistake; it cannot count beyond 3. */
function countsUp(messages: { role: string; content: string }[]): ReturnType<typeof answer> {
  const wanted = Math.min(3, Number(/Count to (\d+)/.exec(messages[1]?.content ?? '')?.[1]));
  const turns = messages.filter(({ role }) => role === 'assistant').length;
  if (turns === 0) return said('<tool_call>{"name": "refuse", "arguments": {}}</tool_call>');
  return said(turns <= wanted ? increment : `I counted to ${wanted}. <done>`);
}

const specOf = (version: string, teacher: object = {}, change: object = {}) => {
  const tasks = join(folder, `tasks-${version}.jsonl`);
  writeFileSync(tasks, [1, 2, 3, 4].map((number) => `${JSON.stringify(counterTask(number))}\n`).join(''));
  const { port } = endpoint.address() as AddressInfo;
  return {
    ...{ name: 'taught', version, tasks },
    environments: [{ env_key: 'counter', url: environments.url, grading_token_env: 'COUNTER_TOKEN' }],
    teacher: {
      ...{ url: `http://127.0.0.1:${port}/v1`, model: 'big', api_key_env: 'TEACHER_KEY' },
      ...{ samples: 2, max_tokens: 100_000, ...teacher },
    },
    parallel: 1,
    ...change,
  };
};
const scope = { signal: new AbortController().signal, progress: () => undefined, recorded: () => undefined };
const window = { from: 0, to: 10 };
const spent = { tokens: 0, usd: 0 };

async function prepare(spec: object) {
  await gatherDataset({ store }, { spec }, scope.signal);
  const taught = await teachTasks({ store }, { spec, ...window, spent }, scope);
  await gateTasks({ store }, { spec, ...window }, scope);
  return { taught, result: await finishDataset({ store }, { spec }, scope.signal) };
}

describe('a teacher', () => {
  it('gives solutions, and demonstrations without its mistakes', async () => {
    const { taught, result } = await prepare(specOf('v1', {}, { unsolved: 'leave_out' }));
    expect(taught).toMatchObject({ solved: 3, exhausted: false });
    expect(taught.spent).toEqual({ tokens: asked.length * 110, usd: 0 });
    expect(result).toMatchObject({
      train_tasks: 3,
      excluded: { unsolved: 1 },
      demonstrations: { solution: 3 },
      untaught: { 'graded 0 at best in 2 tries': 1 },
    });
    const v1 = await requirePrepared(store, 'taught@v1', '');
    const [shown] = await readDatasetItems<Demonstration>(store, v1, 'demonstrations.jsonl');
    expect(shown?.messages.map(({ content }) => content)).toEqual([
      'Count to 1.',
      '<tool_call>{"name":"increment","arguments":{}}</tool_call>',
      '1',
      'I counted to 1. <done>',
    ]);
    expect(await readDatasetItems<Exclusion>(store, v1, 'excluded.jsonl')).toEqual([
      {
        task_key: 'counter/up/4',
        stage: 'unsolved',
        reason: 'it has no solution that was given, or taught and checked',
      },
    ]);
  });

  it('reads what a policy reads, and is asked with its model and key', async () => {
    await prepare(specOf('v2'));
    const [first, second] = asked;
    expect(first).toMatchObject({ model: 'big', key: 'Bearer a-teacher-key', max_tokens: 1024 });
    expect(first?.messages[0]?.content).toContain('## Available Tools');
    expect(second?.messages.at(-1)).toEqual({ role: 'user', content: 'Error: repository x not found' });
  });

  it('is not asked twice for a try that is recorded', async () => {
    const spec = specOf('v3');
    await prepare(spec);
    const before = asked.length;
    const again = await prepare(spec);
    expect(asked).toHaveLength(before);
    expect(again.taught).toMatchObject({ solved: 3, spent: { tokens: before * 110 } });
  });

  it('is asked no more once the budget is spent', async () => {
    const { taught } = await prepare(specOf('v4', { max_tokens: 200 }));
    expect(taught).toMatchObject({ solved: 0, exhausted: true, spent: { tokens: 220 } });
    const price = { prompt: 10_000, completion: 0 };
    const usd = { max_tokens: undefined, max_usd: 2, usd_per_million: price };
    const spec = specOf('v5', usd);
    delete (spec.teacher as { max_tokens?: unknown }).max_tokens;
    const costly = await prepare(spec);
    expect(costly.taught).toMatchObject({ solved: 0, exhausted: true, spent: { usd: 2 } });
  });

  it('that is asked for patience is waited for', async () => {
    let refusals = 2;
    answer = (messages) =>
      refusals-- > 0 ? { status: refusals === 1 ? 429 : 503, body: { error: 'busy' } } : countsUp(messages);
    const { taught } = await prepare(specOf('v6'));
    expect(taught).toMatchObject({ solved: 3 });
  });

  it('that knows the length of a turn by OpenAI’s newer name is asked by that name', async () => {
    answer = (messages, sent) =>
      sent.max_completion_tokens === undefined
        ? { status: 400, body: { error: "Unsupported parameter: 'max_tokens'; use 'max_completion_tokens'" } }
        : countsUp(messages);
    const { taught } = await prepare(specOf('v8', { max_generate_length: 77 }));
    expect(taught).toMatchObject({ solved: 3 });
    expect(asked[0]).toMatchObject({ max_tokens: 77 });
    expect(asked[1]).toMatchObject({ max_completion_tokens: 77 });
  });

  it('that answers garbage once is asked again', async () => {
    let answers = 0;
    answer = (messages) => (++answers % 4 === 2 ? { body: { hello: 1 } } : countsUp(messages));
    const { taught } = await prepare(specOf('g1'));
    expect(taught).toMatchObject({ solved: 3 });
  });

  it('that answers garbage to one task loses its tries alone, and the result says why', async () => {
    answer = (messages) =>
      messages[1]?.content.includes('to 2') ? { body: { hello: 1 } } : countsUp(messages);
    const { taught, result } = await prepare(specOf('g2'));
    expect(taught).toMatchObject({ solved: 2 });
    expect(Object.keys(result.untaught ?? {})).toEqual([
      expect.stringMatching(/^graded 0 at best in 2 tries/),
      expect.stringMatching(
        /^no grade in 2 tries: no answer of the teacher: .* does not answer as a chat endpoint/,
      ),
    ]);
    const show = (...flags: string[]) =>
      longhaul(['data', 'show', 'taught@g2', '--store', store.address, ...flags], { cwd: folder });
    const { output } = await show();
    for (const reason of Object.keys(result.untaught ?? {}))
      expect(output).toContain(`not solved by the teacher: 1 task, ${reason}\n`);
    const shown = JSON.parse((await show('--json')).output) as { untaught: unknown };
    expect(shown.untaught).toEqual(result.untaught);
  });

  it('that solves all tasks is not named by data show', async () => {
    answer = (messages) => {
      const turns = messages.filter(({ role }) => role === 'assistant').length;
      return said(
        turns < Number(/Count to (\d+)/.exec(messages[1]?.content ?? '')?.[1]) ? increment : '<done>',
      );
    };
    await prepare(specOf('shown'));
    const { output } = await longhaul(['data', 'show', 'taught@shown', '--store', store.address], {
      cwd: folder,
    });
    expect(output).toContain('4 tasks with solutions');
    expect(output).not.toContain('not solved by the teacher');
  });

  it('that calls tools by OpenAI’s fields is read', async () => {
    const tokens = { prompt_tokens: 100, completion_tokens: 10 };
    const called = [{ id: 'c', type: 'function', function: { name: 'increment', arguments: '{}' } }];
    answer = (messages) => {
      const { body } = countsUp(messages) as { body: { choices: { message: { content: string } }[] } };
      const content = body.choices[0]?.message.content ?? '';
      return content === increment
        ? { body: { choices: [{ message: { content: null, tool_calls: called } }], usage: tokens } }
        : said(content);
    };
    expect((await prepare(specOf('g3'))).taught).toMatchObject({ solved: 3 });
  });

  it('that is not there is one error within seconds', async () => {
    const spec = specOf('g4', { url: 'http://127.0.0.1:9/v1' });
    await expect(prepare(spec)).rejects.toThrow(/teacher\.url: http:\/\/127\.0\.0\.1:9\/v1 does not answer/);
  }, 60_000);

  it('that refuses a conversation loses the try alone', async () => {
    answer = (messages) =>
      messages[1]?.content.includes('to 2')
        ? { status: 400, body: { error: 'too long' } }
        : countsUp(messages);
    const { taught } = await prepare(specOf('v7'));
    expect(taught).toMatchObject({ solved: 2 });
  });

  it.each<[string, () => void, RegExp]>([
    [
      'a wrong key',
      () => (answer = () => ({ status: 401, body: {} })),
      /teacher\.url: the endpoint answers 401/,
    ],
    [
      'no count of tokens',
      () => (answer = () => ({ body: { choices: [{ message: { content: '' } }] } })),
      /does not count tokens/,
    ],
    ['something else', () => (answer = () => ({ body: { hello: 1 } })), /does not answer as a chat endpoint/],
  ])('with %s is one error', async (name, change, message) => {
    change();
    await expect(prepare(specOf(`x-${name.replaceAll(' ', '-')}`))).rejects.toThrow(message);
  });

  it.each<[string, object, RegExp]>([
    ['no budget', { max_tokens: undefined }, /teacher: has no budget; give max_tokens/],
    [
      'a budget in USD without prices',
      { max_tokens: undefined, max_usd: 1 },
      /teacher\.usd_per_million: is missing/,
    ],
    ['a key in its address', { url: 'http://me:secret@host/v1' }, /api_key_env/],
  ])('with %s is refused', (_, teacher, message) => {
    const spec = JSON.parse(JSON.stringify(specOf('y', teacher))) as object;
    expect(() => parseDatasetSpec(spec)).toThrow(message);
  });
});
