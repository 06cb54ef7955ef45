// Worker threads run the sources, like everything else in a test, instead of compiled code.
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

// Files that share a process load this more than once.
if (threads.Worker.name !== SourceWorker.name) {
  threads.Worker = SourceWorker;
  syncBuiltinESMExports();
}
