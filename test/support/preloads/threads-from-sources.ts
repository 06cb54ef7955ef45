// A test that reaches a worker thread runs it from the sources, as everything else in a test does.
import { existsSync } from 'node:fs';
import { createRequire, syncBuiltinESMExports } from 'node:module';
import type * as Threads from 'node:worker_threads';

const threads = createRequire(import.meta.url)('node:worker_threads') as { Worker: typeof Threads.Worker };
const register = new URL('./typescript-register.mjs', import.meta.url).href;
const execArgv = [...process.execArgv, '--import', register];

class SourceWorker extends threads.Worker {
  constructor(entry: string | URL, options?: Threads.WorkerOptions) {
    const source = entry instanceof URL ? new URL(entry.href.replace(/\.js$/, '.ts')) : null;
    if (source && existsSync(source)) super(source, { ...options, execArgv });
    else super(entry, options);
  }
}

// Files that share a process load this again.
if (threads.Worker.name !== SourceWorker.name) {
  threads.Worker = SourceWorker;
  syncBuiltinESMExports();
}
