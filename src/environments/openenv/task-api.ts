// Reads the tasks that a server of OpenEnv 0.4.1 or later lists itself, page by page. Their form is the environment's own; a reset with `split` and
// `index` selects one.
import { isObject, numberIn, parseServerJson, writeJson } from '../../base/json.js';
import { httpRequest, NoAnswer } from '../../base/http-request.js';
import { EnvironmentError } from '../environment.js';
import { textOf } from '../tool-results.js';

/** A row of a task file. */
interface ServerTask {
  task_key: string;
  /** Empty if the task has no prompt; the model then reads what the reset shows. */
  prompt: string;
  env_key: string;
  reset: { split: string; index: number };
  difficulty?: number;
  template?: string;
  env_variables?: Record<string, string | number | boolean>;
}

interface TaskApiOptions {
  headers?: Readonly<Record<string, string>>;
  /** Key by which the rows name the environment; absent: a task's own `env_key`, or the environment's name on the server. */
  envKey?: string;
  /** Limit of all answers together. */
  maxBytes?: number;
}

const tasksOfPage = 500;
const answerWithinMs = 60_000;
const maxTasks = 1_000_000;
const notImplemented = 501;

/**
 * Returns the tasks of a split in the server's order. `env`: name of the environment on the server (`/list_environments`). Throws an
 * `EnvironmentError` (`unavailable`) while the server is away, another Error that names what is missing, or the signal's reason if it aborts.
 */
export async function readServerTasks(
  url: string,
  env: string,
  split: string,
  signal: AbortSignal,
  { headers = {}, envKey, maxBytes = 256 << 20 }: TaskApiOptions = {},
): Promise<ServerTask[]> {
  const server = new TaskServer(url.replace(/\/+$/, ''), headers, maxBytes, signal);
  const path = `/${encodeURIComponent(env)}`;
  const { status, body } = await server.ask(`${path}/num_tasks`, { split });
  if (status !== 200 && status !== notImplemented) throw await server.refusal(env, split, status, body);
  const count = isObject(body) ? numberIn(body.num_tasks) : null;
  const tasks =
    status === 200 && count !== null
      ? await readPages(server, path, split, count)
      : await readAll(server, path, split);
  if (tasks.length === 0) throw await server.refusal(env, split, 200, { detail: 'the split has no task' });
  return rowsOf(tasks, env, split, envKey);
}

async function readPages(server: TaskServer, path: string, split: string, count: number): Promise<unknown[]> {
  if (count > maxTasks) throw new Error(`${server.url} has ${count} tasks; at most ${maxTasks} are read`);
  const tasks: unknown[] = [];
  while (tasks.length < count) {
    const start = tasks.length;
    const stop = Math.min(count, start + tasksOfPage);
    const { status, body } = await server.ask(`${path}/task_range`, { split, start, stop });
    if (status === notImplemented && start === 0) return readAll(server, path, split);
    const page = tasksIn(server, 'task_range', status, body);
    if (page.length !== stop - start)
      throw new Error(`${server.url} gives ${page.length} tasks from ${start} to ${stop} of ${count}`);
    tasks.push(...page);
  }
  return tasks;
}

async function readAll(server: TaskServer, path: string, split: string): Promise<unknown[]> {
  const { status, body } = await server.ask(`${path}/tasks`, { split });
  if (status === notImplemented) throw new Error(`${server.url}: the environment lists no tasks`);
  return tasksIn(server, 'tasks', status, body);
}

function tasksIn(server: TaskServer, route: string, status: number, body: unknown): unknown[] {
  const tasks = isObject(body) ? body.tasks : undefined;
  if (status === 200 && Array.isArray(tasks)) return tasks as unknown[];
  throw new Error(`${server.url} answers ${route} with ${status}${detailIn(body)}`);
}

class TaskServer {
  #bytes = 0;

  constructor(
    readonly url: string,
    private readonly headers: Readonly<Record<string, string>>,
    private readonly maxBytes: number,
    private readonly signal: AbortSignal,
  ) {}

  /** Posts `data`, or gets without it. `body` is undefined if the answer is not JSON. Throws while the server is away. */
  async ask(path: string, data?: Record<string, unknown>): Promise<{ status: number; body: unknown }> {
    try {
      const send = () =>
        httpRequest(`${this.url}${path}`, {
          ...{ headers: this.headers, timeoutMs: answerWithinMs, signal: this.signal },
          ...(data === undefined ? {} : { body: writeJson(data) }),
          maxBytes: this.maxBytes - this.#bytes,
        });
      const answer = await send().catch((error: unknown) => {
        // The server may just have closed a connection that was kept from an earlier request.
        if (!(error instanceof NoAnswer && error.reason === 'connection') || error.wasNotSent) throw error;
        return send();
      });
      this.#bytes += answer.bytes.length;
      const { status } = answer;
      const body = parsed(answer.text);
      // 500 is an exception of the environment, such as of a split that it does not have.
      if (status === 429 || status > notImplemented)
        throw away(`${this.url}${path} answers with ${status}${detailIn(body)}`);
      return { status, body };
    } catch (error) {
      if (!(error instanceof NoAnswer)) throw error;
      if (error.reason === 'size')
        throw new Error(`${this.url} lists more than ${this.maxBytes} bytes of tasks`, { cause: error });
      const why = error.reason === 'timeout' ? `not within ${answerWithinMs / 1000} s` : error.message;
      throw away(`${this.url}${path} does not answer: ${why}`, { cause: error });
    }
  }

  /** Why the tasks cannot be read, with what there is instead. */
  async refusal(env: string, split: string, status: number, body: unknown): Promise<Error> {
    const listed = await this.ask('/list_environments');
    if (listed.status !== 200 || !Array.isArray(listed.body))
      return new Error(`${this.url} has no Task API, which OpenEnv has since 0.4.1: give a file of tasks`);
    if (status === 404)
      return new Error(`${this.url} has no environment "${env}"; it has ${namesIn(listed.body)}`);
    const splits = await this.ask(`/${encodeURIComponent(env)}/splits`);
    const known = Array.isArray(splits.body)
      ? `; its splits are ${namesIn((splits.body as unknown[]).map((one) => (isObject(one) ? one.name : one)))}`
      : '';
    return new Error(`${this.url} gives no tasks of "${split}" (${status}${detailIn(body)})${known}`);
  }
}

function away(message: string, options?: ErrorOptions): EnvironmentError {
  return new EnvironmentError('unavailable', 'connect', message, options);
}

/** Undefined if the text is not JSON. */
function parsed(text: string): unknown {
  try {
    return parseServerJson(text);
  } catch {
    return undefined;
  }
}

const promptFields = ['prompt', 'user_prompt', 'instruction', 'question', 'problem'];
const keyFields = ['task_key', 'key', 'task_id', 'id'];
/** Same as in a task file. */
const longestKey = 200;

function rowsOf(
  tasks: readonly unknown[],
  env: string,
  split: string,
  envKey: string | undefined,
): ServerTask[] {
  const own = tasks.map(ownKey);
  const keys = new Set(own);
  const areKeys = keys.size === tasks.length && !keys.has(null);
  return tasks.map((task, index) => {
    const { difficulty, template, env_key, env_variables, ...fields } = isObject(task) ? task : {};
    const prompt = promptFields.map((name) => fields[name]).find((value) => typeof value === 'string');
    const level = numberIn(difficulty);
    const isLevel = level !== null && Number.isInteger(level) && level >= 1;
    return {
      task_key: (areKeys ? own[index] : null) ?? `${env}/${split}/${index}`,
      prompt: typeof task === 'string' ? task : textOf(prompt, ''),
      env_key: envKey ?? (isText(env_key) ? env_key : env),
      reset: { split, index },
      ...(isLevel ? { difficulty: level } : {}),
      ...(isText(template) ? { template } : {}),
      ...(isVariables(env_variables) ? { env_variables } : {}),
    };
  });
}

const isText = (value: unknown): value is string => typeof value === 'string' && value !== '';

function isVariables(value: unknown): value is Record<string, string | number | boolean> {
  return (
    isObject(value) &&
    Object.values(value).every((one) => ['string', 'number', 'boolean'].includes(typeof one))
  );
}

/** A number is not used as a key, because each split may count from 0. */
function ownKey(task: unknown): string | null {
  if (!isObject(task)) return null;
  const key = keyFields.map((name) => task[name]).find((value) => typeof value === 'string' && value !== '');
  return typeof key === 'string' && key.length <= longestKey ? key : null;
}

function detailIn(body: unknown): string {
  if (body === undefined) return ', and not with JSON';
  const detail = isObject(body) ? body.detail : undefined;
  if (detail === undefined) return '';
  return `: ${textOf(detail, writeJson(detail)).slice(0, 300)}`;
}

function namesIn(names: readonly unknown[]): string {
  return names.length === 0 ? 'none' : names.slice(0, 20).map(String).join(', ');
}
