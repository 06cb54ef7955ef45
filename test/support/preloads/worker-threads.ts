// Worker threads of `src/` run compiled code if it is current, because a thread that compiles takes twice as long to start; else they run the
// sources.
import { existsSync } from 'node:fs';
import { createRequire, syncBuiltinESMExports } from 'node:module';
import type * as Threads from 'node:worker_threads';

const threads = createRequire(import.meta.url)('node:worker_threads') as { Worker: typeof Threads.Worker };
const register = new URL('./typescript-register.mjs', import.meta.url).href;
const sources = new URL('../../../src/', import.meta.url).href;
const compiled = new URL('../../../dist/', import.meta.url);
const isCompiledCurrent = process.env.LONGHAUL_TEST_COMPILED_THREADS !== undefined;
const execArgv = [...process.execArgv, '--import', register];

class SourceWorker extends threads.Worker {
  constructor(entry: string | URL, options?: Threads.WorkerOptions) {
    const source = entry instanceof URL ? new URL(entry.href.replace(/\.js$/, '.ts')) : null;
    if (!source || !existsSync(source)) super(entry, options);
    else if (isCompiledCurrent && source.href.startsWith(sources))
      super(new URL(source.href.slice(sources.length).replace(/\.ts$/, '.js'), compiled), options);
    else super(source, { ...options, execArgv });
  }
}

// Files that share a process load this more than once.
if (threads.Worker.name !== SourceWorker.name) {
  threads.Worker = SourceWorker;
  syncBuiltinESMExports();
}
