// The example of τ²-bench: its server and its tasks, played through our client. τ² wrote the tasks, the solutions and the grading.
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { refuseBadFiles } from '../../src/data/dataset-validation.js';
import { contentText } from '../../src/episode/observation.js';
import { parseTasks } from '../../src/data/task-file.js';
import type { Environment, EnvironmentBackend } from '../../src/environments/environment.js';
import { createOpenEnvBackend } from '../../src/environments/openenv/openenv-backend.js';
import type { Task, ToolCall } from '../../src/spec/records/task.js';
import { pythonWith } from '../support/python/python-environments.js';
import { ownFolder, scratchFolder } from '../support/scratch-folder.js';
import { type OpenEnvFixture, startPythonServer } from '../support/servers/openenv-fixture.js';
import { tau2Spec } from './tau2-spec.js';

const example = 'examples/tau2';
const python = await pythonWith('tau2');

interface Solution {
  task_key: string;
  calls: ToolCall[];
}
/** Tasks of τ² by domain: those of the file, and those that it leaves out because doing nothing solves them. */
const expected = {
  retail: { made: 107, leftOut: 7 },
  airline: { made: 31, leftOut: 19 },
  telecom: { made: 2285, leftOut: 0 },
};
type Domain = keyof typeof expected;
const domains = Object.keys(expected) as Domain[];
const places = 16;
const quiet = new AbortController().signal;

describe.skipIf(!python)('the example of τ²-bench', { timeout: 1_200_000 }, () => {
  const data = scratchFolder();
  let tasks: Task[];
  let solutions: Map<string, Solution>;
  let leftOut: string[];
  let servers: Record<Domain, OpenEnvFixture>;
  let backends: Record<Domain, EnvironmentBackend>;

  beforeAll(async () => {
    const made = await promisify(execFile)(python, [
      join(example, 'make_tasks.py'),
      ...['--full', '--to', data],
    ]);
    leftOut = [...made.stdout.matchAll(/^left out: (\S+): doing nothing is graded 1$/gm)].map(
      ([, key = '']) => key,
    );
    tasks = parseTasks(readFileSync(join(data, 'tasks.jsonl'), 'utf8'), 'tasks.jsonl');
    const lines = readFileSync(join(data, 'solutions.jsonl'), 'utf8').trimEnd().split('\n');
    solutions = new Map(lines.map((line) => JSON.parse(line) as Solution).map((one) => [one.task_key, one]));
    const started = await Promise.all(
      domains.map(async (domain) => {
        const args = [join(example, 'server.py'), domain, '--places', String(places), '--port'];
        return [domain, await startPythonServer(python, (port) => [...args, String(port)])] as const;
      }),
    );
    servers = Object.fromEntries(started) as typeof servers;
    const clients = started.map(([domain, { url }]) => [
      domain,
      createOpenEnvBackend({ url, maxSessions: 64, tools: 'shared' }),
    ]);
    backends = Object.fromEntries(clients) as typeof backends;
  }, 1_200_000);
  afterAll(async () => {
    await Promise.all(Object.values(backends ?? {}).map((backend) => backend.close()));
    await Promise.all(Object.values(servers ?? {}).map((server) => server.stop()));
  });

  const tasksOf = (domain: Domain) => tasks.filter((task) => task.env_key === `tau2-${domain}`);
  const taskOf = (domain: Domain, task_key: string): Task => ({ ...tasksOf(domain)[0]!, task_key });
  const gradeOf = async (env: Environment) =>
    (await env.grade({ finalAnswer: '', tryNumber: 0 })).outcome.value;

  async function play(domain: Domain, task: Task, calls: readonly ToolCall[]) {
    const env = await backends[domain].open(task, { seed: 1, episodeId: task.task_key, tryNumber: 0 }, quiet);
    try {
      const grades = [await gradeOf(env)];
      const results = [];
      for (const [turn, call] of calls.entries()) {
        results.push(await env.callTool(call, { turn, tryNumber: 0 }));
        grades.push(await gradeOf(env));
      }
      return { tools: env.tools, grades, results, ends: results.map(({ ends }) => ends === true) };
    } finally {
      await env.close();
    }
  }

  const done = (domain: Domain): ToolCall => ({
    name: 'done',
    arguments: domain === 'telecom' ? {} : { answer: '' },
  });

  it('makes as many tasks as its README says, held out as τ² splits them', () => {
    for (const domain of domains) {
      const made = tasksOf(domain);
      const keys = leftOut.filter((key) => key.startsWith(`tau2/${domain}/`));
      expect({ made: made.length, leftOut: keys.length }).toEqual(expected[domain]);
    }
    const heldOut = domains.map(
      (domain) => tasksOf(domain).filter(({ split }) => split === 'held_out').length,
    );
    expect(heldOut).toEqual([38, 14, 40]);
    expect(solutions.size).toBe(tasks.length);
  });

  it('makes the tasks that its spec asks for', async () => {
    const spec = await tau2Spec(ownFolder(), readFileSync(join(data, 'tasks.jsonl'), 'utf8'));
    await expect(refuseBadFiles(spec)).resolves.toHaveProperty('tasks');
  });

  it.each(domains)('grades every gold solution of %s with 1, and less before it begins', async (domain) => {
    const played = await Promise.all(
      tasksOf(domain).map(async (task) => {
        const { calls } = solutions.get(task.task_key)!;
        const { grades, ends } = await play(domain, task, calls);
        const { answer = '' } = calls.at(-1)!.arguments as { answer?: string };
        const atEnd = ends.indexOf(true) === calls.length - 1;
        return {
          key: task.task_key,
          answer,
          atEnd,
          first: grades[0],
          last: grades.at(-1),
          beforeEnd: grades.at(-2),
        };
      }),
    );
    expect(played).toHaveLength(expected[domain].made);
    expect(played.filter(({ first, last, atEnd }) => first !== 0 || last !== 1 || !atEnd)).toEqual([]);
    // An episode that stops without `done` has the same grade, unless something must be said.
    expect(played.filter(({ beforeEnd, answer }) => beforeEnd !== (answer === '' ? 1 : 0))).toEqual([]);
  });

  it.each(domains)('grades an episode of %s in which nothing was done with 0', async (domain) => {
    const chosen = tasksOf(domain).slice(-120);
    const grades = await Promise.all(
      chosen.map(async (task) => (await play(domain, task, [done(domain)])).grades),
    );
    expect(new Set(grades.flat())).toEqual(new Set([0]));
  });

  it('leaves out the tasks that are solved by doing nothing', async () => {
    const grades = await Promise.all(
      leftOut.map(async (key) => {
        const domain = key.split('/')[1] as Domain;
        return (await play(domain, taskOf(domain, key), [done(domain)])).grades.at(-1);
      }),
    );
    expect(new Set(grades)).toEqual(new Set([1]));
  });

  it('grades a gold solution that lacks its last change, or changes one thing more, with 0', async () => {
    const [task] = tasksOf('retail');
    const { calls } = solutions.get(task!.task_key)!;
    expect(calls.at(-2)!.name).toBe('exchange_delivered_order_items');
    const lacking = await play('retail', task!, [...calls.slice(0, -2), calls.at(-1)!]);
    expect(lacking.grades.at(-1)).toBe(0);
    const cancel: ToolCall = {
      name: 'cancel_pending_order',
      arguments: { order_id: '#W5918442', reason: 'no longer needed' },
    };
    const { grades, results } = await play('retail', task!, [...calls.slice(0, -1), cancel, calls.at(-1)!]);
    expect(results.at(-2)).toMatchObject({ isError: false });
    expect(grades.slice(-3)).toEqual([1, 0, 0]);
  });

  it('gives the tools of τ² and of the simulated customer, and one that ends the episode', async () => {
    const names = await Promise.all(
      domains.map(async (domain) =>
        (await play(domain, tasksOf(domain)[0]!, [])).tools.map(({ name }) => name),
      ),
    );
    expect(names.map((list) => list.length)).toEqual([16, 15, 44]);
    for (const list of names) expect(list).toContain('done');
    expect(names[2]).toEqual(expect.arrayContaining(['refuel_data', 'toggle_airplane_mode']));
  });

  it('answers the same calls with the same text, where τ² gives a bill a random number', async () => {
    const calls = [
      { name: 'refuel_data', arguments: { customer_id: 'C1002', line_id: 'L1004', gb_amount: 1 } },
      { name: 'get_customer_by_id', arguments: { customer_id: 'C1002' } },
    ];
    const [task] = tasksOf('telecom');
    const [one, two] = [await play('telecom', task!, calls), await play('telecom', task!, calls)];
    expect(contentText(one.results[1]!.content)).toContain('"bill_ids": ["B1004", "B1005", "B1007"]');
    expect(two).toEqual(one);
  });

  it('shows the model its mistakes, and computes no tower of powers', async () => {
    const { results } = await play('retail', tasksOf('retail')[0]!, [
      { name: 'get_order_details', arguments: { order_id: '#W0' } },
      { name: 'get_order_details', arguments: { order: '#W0' } },
      { name: 'fly', arguments: {} },
      { name: 'calculate', arguments: { expression: '9**9**9**9' } },
      { name: 'calculate', arguments: { expression: '9 * 9' } },
    ]);
    expect(results.slice(0, 4).every(({ isError }) => isError)).toBe(true);
    expect(contentText(results[0]!.content)).toBe('Error: Order not found');
    expect(results[4]).toEqual({ content: [{ type: 'text', text: '81.0' }], isError: false });
  });

  it('refuses a task that is not of its domain', async () => {
    await expect(play('retail', taskOf('retail', 'tau2/airline/2'), [])).rejects.toMatchObject({
      kind: 'failed',
      reason: 'open',
      message: expect.stringContaining('there is no task tau2/airline/2') as string,
    });
  });
});
