import { Worker, type WorkerOptions } from '@temporalio/worker';

/** A worker whose workflows run on the test's own thread: a thread for them takes each worker a second of processor time to start. */
export function testWorker(options: WorkerOptions): Promise<Worker> {
  return Worker.create({ ...options, debugMode: true });
}
