// Process entry of the follower. Flags and variables: follower-config.ts.
import { existsSync, readdirSync } from 'node:fs';
import { constants, setPriority } from 'node:os';
import { readFollowerConfig } from './follower/follower-config.js';
import { lockFolder } from './process/folder-lock.js';
import { exitWith } from './process/worker-exit.js';

await exitWith('follower', async () => {
  yieldToOthers();
  const config = readFollowerConfig(process.argv.slice(2));
  const lock = lockFolder(config.folder, `follower of the runs of ${config.temporal.address}`);
  try {
    const { runFollower } = await import('./follower/follower-process.js');
    await runFollower(config);
  } finally {
    lock.release();
  }
});

/**
 * Lowers the priority: the follower can wait for the processes on which it reports. Linux keeps a priority for each thread, so set it for
 * all threads that run already.
 */
function yieldToOthers(): void {
  const threads = existsSync('/proc/self/task') ? readdirSync('/proc/self/task').map(Number) : [0];
  for (const thread of threads) setPriority(thread, constants.priority.PRIORITY_BELOW_NORMAL);
}
