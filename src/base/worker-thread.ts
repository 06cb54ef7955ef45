// Runs a function on a thread of its own. On the main thread, seconds of computation would block heartbeats and all other activities.
import { once } from 'node:events';
import { types } from 'node:util';
import { parentPort, Worker } from 'node:worker_threads';
import { joinSignals } from './abortable.js';

export interface WorkerThread<Input, Output> {
  /**
   * One call at a time. Rejects with the function's error, with the signal's reason, or after the deadline; the thread cannot be used after
   * that.
   */
  call(input: Input): Promise<Output>;
  /** Must always be called. */
  end(): Promise<void>;
}

interface ThreadOptions {
  /** Limit for one call. */
  deadlineMs: number;
  signal?: AbortSignal | undefined;
  /** What the entry module reads as `workerData`. */
  workerData?: unknown;
}

/** `entry`: a module that calls `answerCalls`. */
export function startThread<Input, Output>(
  entry: URL,
  { deadlineMs, signal, workerData }: ThreadOptions,
): WorkerThread<Input, Output> {
  const name = entry.pathname.replace(/.*\//, '');
  const worker = new Worker(entry, { workerData });
  // A thread that waits for calls does not keep the process alive; a running call's timer does.
  worker.unref();
  const failed = new AbortController();
  const stopped = joinSignals([failed.signal, ...(signal ? [signal] : [])]);
  worker.once('error', (error) => failed.abort(error));
  worker.once('exit', (code) => failed.abort(new Error(`the thread ${name} ended with code ${code}`)));

  let isBusy = false;
  async function call(input: Input): Promise<Output> {
    stopped.signal.throwIfAborted();
    if (isBusy) throw new Error(`the thread ${name} was called while it was computing`);
    isBusy = true;
    const late = (): void =>
      failed.abort(new Error(`the thread ${name} gave no answer within ${deadlineMs} ms`));
    const timer = setTimeout(late, deadlineMs);
    try {
      worker.postMessage(input);
      const [output] = (await once(worker, 'message', { signal: stopped.signal })) as [Output];
      return output;
    } catch (error) {
      stopped.signal.throwIfAborted();
      throw error;
    } finally {
      clearTimeout(timer);
      isBusy = false;
    }
  }

  async function end(): Promise<void> {
    failed.abort(new Error('the thread was ended'));
    stopped.release();
    await worker.terminate();
  }

  return { call, end };
}

/** Call in a thread's entry module. An error thrown by `answer` ends the thread and is thrown to the caller. */
export function answerCalls<Input, Output>(answer: (input: Input) => Output | Promise<Output>): void {
  const reply = async (input: Input): Promise<void> => {
    try {
      parentPort?.postMessage(await answer(input));
    } catch (error) {
      throw asNativeError(error);
    }
  };
  // An error is an unhandled rejection here, which ends the thread.
  parentPort?.on('message', (input: Input) => void reply(input));
}

/** Between threads only native errors keep their message and stack. SQLite's errors are not native. */
function asNativeError(error: unknown): unknown {
  if (!(error instanceof Error) || types.isNativeError(error)) return error;
  const { message, stack } = error;
  return Object.assign(new Error(message), error, { stack });
}
