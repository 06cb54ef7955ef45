import { defineConfig } from 'vitest/config';
import LongestFirst from './test/support/whole-run/longest-first.js';

/** Set-up of files that share a process and its modules. */
const sharedProcess = 'test/support/preloads/shared-process-setup.ts';

/** Set-up of all files: worker threads run the sources that a test runs. */
const threads = 'test/support/preloads/worker-threads.ts';

/** Tests that wait for other processes. */
const waiting = {
  pool: 'forks',
  // In one group, so that files which mostly wait run beside others. Four workers keep two cores busy; with more, deadlines would be
  // missed.
  sequence: { groupOrder: 1 },
  maxWorkers: 4,
  // These limits end what hangs. A machine that is busy with other work takes many times as long as an idle one.
  testTimeout: 900_000,
  hookTimeout: 900_000,
  teardownTimeout: 60_000,
  expect: { poll: { timeout: 120_000 } },
} as const;

// A file's name says what it needs: `*.server.test.ts` needs other processes, `*.slow.test.ts` takes minutes, and any other file needs only
// the code. `*.nightly.test.ts` rarely finds a fault (docs/README.md, "Tests").
export default defineConfig({
  test: {
    globalSetup: ['test/support/whole-run/global-setup.ts'],
    reporters: ['default', './test/support/whole-run/reporter.ts'],
    sequence: { sequencer: LongestFirst },
    projects: [
      {
        test: {
          name: 'pure',
          include: ['test/**/*.test.ts'],
          exclude: ['test/**/*.{server,slow,nightly}.test.ts'],
          setupFiles: ['test/support/preloads/pure-setup.ts', sharedProcess, threads],
          // Not threads: some native addons that these files load crash when a thread ends.
          pool: 'forks',
          isolate: false,
          maxWorkers: 2,
          testTimeout: 300_000,
          hookTimeout: 300_000,
          sequence: { groupOrder: 0 },
        },
      },
      {
        test: {
          ...waiting,
          name: 'server',
          include: ['test/**/*.{server,slow}.test.ts'],
          // Files share processes: loading the code and Temporal's SDK takes seconds, and files share a cluster.
          isolate: false,
          setupFiles: [sharedProcess, threads],
          globalSetup: ['test/support/whole-run/temporal-setup.ts'],
        },
      },
      {
        test: {
          ...waiting,
          name: 'nightly',
          include: ['test/**/*.nightly.test.ts'],
          setupFiles: threads,
        },
      },
    ],
  },
});
