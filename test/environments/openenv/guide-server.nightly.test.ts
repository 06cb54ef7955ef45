// The server of the guide is one that works: it is read from the page, and played.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { tryEnvironment } from '../../../src/cli/stack/environment-trial.js';
import { parseTasks } from '../../../src/data/task-file.js';
import { createOpenEnvBackend } from '../../../src/environments/openenv/openenv-backend.js';
import { contentText } from '../../../src/episode/observation.js';
import type { Task } from '../../../src/spec/records/task.js';
import { freePort } from '../../../src/stack/free-port.js';
import { pythonWith } from '../../support/python/python-environments.js';

const python = await pythonWith('openenv');

const page = readFileSync('docs/guide/own-environment.md', 'utf8');
const block = (kind: string): string => {
  const text = new RegExp(`^\`\`\`${kind}\n([^]*?)^\`\`\`$`, 'm').exec(page)?.[1];
  if (text === undefined) throw new Error(`the page has no block of kind ${kind}`);
  return text;
};
const quiet = new AbortController().signal;

describe.skipIf(!python)('the server of the guide', () => {
  const folder = mkdtempSync(join(tmpdir(), 'longhaul-guide-'));
  let url: string;
  let stop: () => Promise<void> = async () => undefined;
  beforeAll(async () => {
    writeFileSync(join(folder, 'shop.py'), block('python'));
    const port = await freePort();
    url = `http://127.0.0.1:${port}`;
    const server = spawn(python, ['-m', 'uvicorn', 'shop:app', '--port', String(port)], {
      ...{ cwd: folder, stdio: 'ignore' },
    });
    const ended = once(server, 'exit');
    stop = async () => {
      server.kill('SIGKILL');
      await ended;
    };
    const isUp = () =>
      fetch(`${url}/health`).then(
        ({ ok }) => ok,
        () => false,
      );
    for (const late = Date.now() + 290_000; !(await isUp()); await sleep(100))
      if (Date.now() > late || server.exitCode !== null) throw new Error('the server does not start');
  });
  afterAll(async () => {
    await stop();
    rmSync(folder, { recursive: true });
  });

  const tasks = parseTasks(block('json tasks'), 'shop.jsonl');

  /** Plays with a total that is off by `error`. */
  async function play(task: Task, error: number): Promise<{ ends: boolean | undefined; value: number }> {
    const backend = createOpenEnvBackend({ url, maxSessions: 4 });
    const env = await backend.open(task, { seed: 3, episodeId: task.task_key, tryNumber: 0 }, quiet);
    let turn = 0;
    const call = (name: string, args: Record<string, unknown>) =>
      env.callTool({ name, arguments: args }, { turn: turn++, tryNumber: 0 });
    let total = error;
    for (const [fruit, count] of Object.entries(task.reset?.basket as Record<string, number>))
      total += count * Number(contentText((await call('price', { fruit })).content));
    const { ends } = await call('submit_answer', { total });
    const { outcome } = await env.grade({ finalAnswer: '', tryNumber: 0 });
    await env.close();
    await backend.close();
    return { ends, value: outcome.value };
  }

  it.each(tasks.map((task) => [task.task_key, task] as const))(
    'ends %s at the answer, and grades it',
    async (_, task) => {
      expect(await play(task, 0)).toEqual({ ends: true, value: 1 });
      expect(await play(task, 1)).toEqual({ ends: true, value: 0 });
    },
  );

  it('passes each check of env check', async () => {
    const found = await tryEnvironment({ server: { url }, task: tasks[0]! });
    expect(found.filter(({ ok }) => !ok)).toEqual([]);
    expect(found.find(({ check }) => check === 'episode')?.detail).toContain('price(fruit), submit_answer(');
    expect(found.find(({ check }) => check === 'grade')?.detail).toBe('doing nothing is graded 0');
  });
});
